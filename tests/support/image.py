"""The container image of a run of tests: built by the process that needs it first, for all of them."""

from __future__ import annotations

import os

import pytest

from lab.image import build
from lab.lock import exclusive


def require_tools() -> None:
    """Skip the test if this machine cannot build the image; in CI, fail."""
    if reasons := build.unsupported():
        reason = f"no image: {'; '.join(reasons)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def built(folders: pytest.TempPathFactory) -> build.Built:
    """Return the image; to build it takes a minute of both processors."""
    own = folders.getbasetemp()
    # Each of the processes of `make test` has a folder in that of the run.
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "image"
    folder.mkdir(exist_ok=True)
    archive = folder / "image.tar"
    with exclusive(folder / "lock", holder="a build of the image", wait=print):
        if not archive.exists():
            build.build(folder / "partial.tar").archive.rename(archive)
    return build.read(archive)
