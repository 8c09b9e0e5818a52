"""What tests that build the image need of the machine."""

from __future__ import annotations

import os

import pytest

from lab.image import build


def require_image_tools() -> None:
    """Skip the test if this machine cannot build the image; in CI, fail."""
    if reasons := build.unsupported():
        reason = f"no image: {'; '.join(reasons)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
