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
    """Return the files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {name: file.read() for name in tar.getnames() if (file := tar.extractfile(name))}


@pytest.fixture
def files() -> dict[str, bytes]:
    """Return the files in the archive of all images."""
    return unpack(images.archive(images.ALL, program=PROGRAM, applets=APPLETS))


def test_the_manifest_names_config_and_layers(files: dict[str, bytes]) -> None:
    """The archive has the configuration and the layer of every image, named after their digests."""
    manifest: list[dict[str, Any]] = json.loads(files["manifest.json"])
    assert [tag for entry in manifest for tag in entry["RepoTags"]] == [image.name for image in images.ALL]
    for entry in manifest:
        config = json.loads(files[entry["Config"]])
        digests = [hashlib.sha256(files[layer]).hexdigest() for layer in entry["Layers"]]
        assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
        assert entry["Config"] == f"{hashlib.sha256(files[entry['Config']]).hexdigest()}.json"


def test_only_the_cuda_like_image_requests_all_gpus(files: dict[str, bytes]) -> None:
    """One image sets `NVIDIA_VISIBLE_DEVICES=all`, as PyTorch's images do; the others do not set it."""
    environments = {
        entry["RepoTags"][0]: json.loads(files[entry["Config"]])["config"]["Env"]
        for entry in json.loads(files["manifest.json"])
    }
    asking = [name for name, environment in environments.items() if "NVIDIA_VISIBLE_DEVICES=all" in environment]
    assert asking == [images.CUDA_LIKE.name]


def test_the_layer_has_the_program_and_a_link_per_applet(files: dict[str, bytes]) -> None:
    """`sh` and `env` are at their usual paths, and busybox is executable."""
    layer = next(content for name, content in files.items() if name.endswith("layer.tar"))
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert (entries["bin/busybox"].size, entries["bin/busybox"].mode) == (len(PROGRAM), 0o755)
    assert entries["bin/sh"].linkname == entries["usr/bin/env"].linkname == "/bin/busybox"
    assert entries["tmp"].mode == 0o1777


def test_the_archive_is_reproducible() -> None:
    """The digests depend only on busybox, not on the clock."""
    first, second = (images.archive(images.ALL, program=PROGRAM, applets=APPLETS) for _ in range(2))
    assert first == second


def test_a_dynamically_linked_busybox_is_rejected(tmp_path: Path) -> None:
    """It would not run in an image without libraries; the error names the right package."""
    busybox = tmp_path / "busybox"
    busybox.write_text("#!/bin/sh\n# /lib64/ld-linux-x86-64.so.2\necho bin/sh\n")
    busybox.chmod(0o755)
    with pytest.raises(LabError, match="linked dynamically; apt-get install busybox-static"):
        images.read_busybox(busybox)
    with pytest.raises(LabError, match="apt-get install busybox-static"):
        images.read_busybox(tmp_path / "none")


def test_scripts_are_programs_of_the_layer() -> None:
    """An image for a test may have further programs, such as a stand-in for nvidia-smi."""
    scripts = {"usr/bin/nvidia-smi": "#!/bin/sh\n"}
    files = unpack(images.archive((images.PLAIN,), program=PROGRAM, applets=APPLETS, scripts=scripts))
    layer = next(content for name, content in files.items() if name.endswith("layer.tar"))
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        entry = tar.getmember("usr/bin/nvidia-smi")
        content = tar.extractfile(entry)
        assert entry.mode == 0o755
        assert content is not None
        assert content.read() == b"#!/bin/sh\n"
