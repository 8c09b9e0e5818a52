"""The image of a run of tests is built once."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from lab.image import build
from tests.support import image


def write(archive: Path) -> build.Built:
    """Write an OCI archive of an image with one layer, in place of the build."""
    manifest = json.dumps({"layers": [{"size": 7}]}).encode()
    index = json.dumps({"manifests": [{"digest": "sha256:aa"}]}).encode()
    with tarfile.open(archive, "w") as tar:
        for name, content in (("index.json", index), ("blobs/sha256/aa", manifest)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return build.read(archive)


def test_a_second_process_takes_what_the_first_one_built(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of one run have folders side by side; one build serves them all."""
    made: list[Path] = []
    monkeypatch.setattr(build, "build", lambda archive: made.append(archive) or write(archive))
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    found = []
    for worker in ("gw0", "gw1"):
        (tmp_path / worker).mkdir()
        monkeypatch.setattr(tmp_path_factory, "getbasetemp", lambda worker=worker: tmp_path / worker)
        found.append(image.built(tmp_path_factory))
    assert len(made) == 1
    assert found == [build.Built(tmp_path / "image" / "image.tar", "sha256:aa", 7)] * 2
