from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lab import images
from lab.errors import LabError

PROGRAM = b"\x7fELF static"
APPLETS = ["bin/busybox", "bin/sh", "usr/bin/env"]


def unpack(archive: bytes) -> dict[str, bytes]:
    """The files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name))}


@pytest.fixture
def files() -> dict[str, bytes]:
    """The archive of all images."""
    return unpack(images.archive(images.ALL, program=PROGRAM, applets=APPLETS))


def test_manifest_leads_to_config_and_layer(files: dict[str, bytes]) -> None:
    """Every image's configuration and layer are in the archive, under names that are their digests."""
    manifest: list[dict[str, Any]] = json.loads(files["manifest.json"])
    assert [tag for entry in manifest for tag in entry["RepoTags"]] == [image.name for image in images.ALL]
    for entry in manifest:
        config = json.loads(files[entry["Config"]])
        digests = [hashlib.sha256(files[layer]).hexdigest() for layer in entry["Layers"]]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
        assert entry["Config"] == f"{hashlib.sha256(files[entry['Config']]).hexdigest()}.json"


def test_only_the_cuda_like_image_asks_for_every_gpu(files: dict[str, bytes]) -> None:
    """One image carries `NVIDIA_VISIBLE_DEVICES=all` as PyTorch's do, the others no such variable."""
    environments = {
        entry["RepoTags"][0]: json.loads(files[entry["Config"]])["config"]["Env"]
        for entry in json.loads(files["manifest.json"])
    }
    asking = [name for name, environment in environments.items() if "NVIDIA_VISIBLE_DEVICES=all" in environment]
    assert asking == [images.CUDA_LIKE.name]


def test_layer_has_the_program_and_a_link_for_each_applet(files: dict[str, bytes]) -> None:
    """A container finds `sh` and `env` where it looks for them, and busybox is executable."""
    layer = next(content for name, content in files.items() if name.endswith("layer.tar"))
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert (entries["bin/busybox"].size, entries["bin/busybox"].mode) == (len(PROGRAM), 0o755)
    assert entries["bin/sh"].linkname == entries["usr/bin/env"].linkname == "/bin/busybox"
    assert entries["tmp"].mode == 0o1777


def test_archive_is_the_same_every_time() -> None:
    """Images have one digest for one busybox: nothing depends on the clock."""
    first, second = (images.archive(images.ALL, program=PROGRAM, applets=APPLETS) for _ in range(2))
    assert first == second


def test_dynamic_busybox_is_refused(tmp_path: Path) -> None:
    """A busybox that needs libraries would not run alone in an image, so it is refused with the right package."""
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\n# /lib64/ld-linux-x86-64.so.2\necho bin/sh\n")
    busybox.chmod(0o755)
    with pytest.raises(LabError, match="linked dynamically; apt-get install busybox-static"):
        images.read_busybox(busybox)
    with pytest.raises(LabError, match="apt-get install busybox-static"):
        images.read_busybox(tmp_path / "none")
