"""Reproducible container images made from the machine's static busybox, without a registry or a download."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUSYBOX = Path("/bin/busybox")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A name for the busybox layer, with an environment and a default command."""

    name: str
    command: tuple[str, ...]
    environment: tuple[str, ...] = (PATH,)


PLAIN = Image("tranche.local/busybox:lab", ("sh",))
# PyTorch's and CUDA's images set this variable: unless the pod overrides it, the container sees every GPU of its node.
CUDA_LIKE = Image("tranche.local/cuda-like:lab", ("sh",), (PATH, "NVIDIA_VISIBLE_DEVICES=all"))
PAUSE = Image("tranche.local/pause:lab", ("sleep", "2147483647"))
ALL = (PLAIN, CUDA_LIKE, PAUSE)


def read_busybox(path: Path = BUSYBOX) -> tuple[bytes, list[str]]:
    """Return the program and the paths of its applets (`bin/sh`, `usr/bin/env`).

    Raises:
        LabError: it does not exist, or needs shared libraries, which the image does not have.
    """
    remedy = "apt-get install busybox-static"
    try:
        program = path.read_bytes()
        listing = subprocess.run([path, "--list-full"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LabError(str(path), why=f"it does not run ({error})", remedy=remedy) from error
    if is_dynamic(program):
        raise LabError(str(path), why="it is linked dynamically", remedy=remedy)
    return program, listing.stdout.split()


def is_dynamic(program: bytes) -> bool:
    """Whether a program names an interpreter near its beginning, as every dynamically linked ELF file does."""
    return b"/ld-" in program[:4096]


def archive(
    images: Sequence[Image], *, program: bytes, applets: Sequence[str], scripts: Mapping[str, str] | None = None
) -> bytes:
    """Return a docker-archive of `images`, which share one layer, for `ctr images import`.

    `scripts` are further programs of the layer by path.

    Format: Docker Image Specification v1.2, "Combined Image JSON + Filesystem Changeset Format".
    """
    layer = _layer(program, applets, scripts or {})
    digest = hashlib.sha256(layer).hexdigest()
    files = {f"{digest}/layer.tar": layer}
    manifest = []
    for image in images:
        config = json.dumps(
            {
                "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "created": "1970-01-01T00:00:00Z",
                "config": {"Env": list(image.environment), "Cmd": list(image.command)},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            }
        ).encode()
        config_name = f"{hashlib.sha256(config).hexdigest()}.json"
        files[config_name] = config
        manifest.append({"Config": config_name, "RepoTags": [image.name], "Layers": [f"{digest}/layer.tar"]})
    files["manifest.json"] = json.dumps(manifest).encode()
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in files.items():
                _add_file(tar, name, content, mode=0o644)
        return buffer.getvalue()


def _layer(program: bytes, applets: Sequence[str], scripts: Mapping[str, str]) -> bytes:
    """Return a layer with busybox, links for its applets, two accounts, and the folders that programs expect."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for folder, mode in {"root": 0o700, "tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755}.items():
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, mode
                tar.addfile(entry)
            _add_file(tar, "bin/busybox", program, mode=0o755)
            for name, content in ACCOUNTS.items():
                _add_file(tar, name, content, mode=0o644)
            for name, text in scripts.items():
                _add_file(tar, name, text.encode(), mode=0o755)
            for applet in sorted(set(applets) - {"bin/busybox"}):
                entry = tarfile.TarInfo(applet)
                entry.type, entry.linkname = tarfile.SYMTYPE, "/bin/busybox"
                tar.addfile(entry)
        return buffer.getvalue()


def _add_file(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
