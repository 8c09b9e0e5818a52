"""Programs that the lab builds from Go modules whose hashes are pinned, and keeps in the shared cache."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import cache, go
from lab.errors import LabError
from lab.lock import exclusive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

BUILD_TIMEOUT_S = 1800.0
HEARTBEAT_S = 30.0


@dataclass(frozen=True, slots=True)
class GoModule:
    """A folder with go.mod and go.sum, and the programs that are built from it.

    Attributes:
        folder: the folder; its name names the programs' folder in the cache.
        requirement: the module whose version is the version of the programs.
        packages: each program and its Go package.
        stamps: the linker's string variables for a version.
        build_gib: the disk space that a build needs.
        sources: further files that the programs are built from.
        tags: build tags, which leave out parts that are not needed.
    """

    folder: Path
    requirement: str
    packages: Mapping[str, str]
    stamps: Callable[[str], Mapping[str, str]]
    build_gib: float
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version that go.mod pins, such as `v1.34.4`."""
        required = (self.folder / "go.mod").read_text(encoding="utf-8")
        match = re.search(rf"^(?:require)?\s*{re.escape(self.requirement)} (v[\d.]+)\b", required, re.MULTILINE)
        if match is None:
            raise LabError(
                f"{self.folder}/go.mod", why=f"it does not require {self.requirement}", remedy="restore the file"
            )
        return match[1]

    def cached_folder(self) -> Path:
        """Return the folder for built programs; it depends on the content of the module and on the flags."""
        digest = hashlib.sha256("\0".join((platform.system(), platform.machine(), *self._flags())).encode())
        for file in ("go.mod", "go.sum", *self.sources):
            digest.update((self.folder / file).read_bytes())
        return cache.folder() / f"{self.folder.name}-{self.version}-{digest.hexdigest()[:12]}"

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those of `names` that are not in the cache."""
        folder = self.cached_folder()
        return [name for name in names if not (folder / name).exists()]

    def provide(self, name: str, *, report: Callable[[str], None], given_by: str = "") -> Path:
        """Return the path of a program in the cache, and build it first if it is missing.

        If the environment variable `given_by` names a program, it is that one.

        Raises:
            LabError: Go or disk space is missing, or the build failed.
        """
        if given := os.environ.get(given_by):
            return Path(given).absolute()
        binary = self.cached_folder() / name
        if not binary.exists():
            with exclusive(cache.folder() / "build.lock", holder=f"a build of {name}", wait=report):
                # The previous holder of the lock may have built it.
                if not binary.exists():
                    self._build(name, binary, report=report)
        return binary

    def _build(self, name: str, binary: Path, *, report: Callable[[str], None]) -> None:
        """Build one program; it appears in the cache only when it is complete."""
        toolchain = go.provide(report)
        binary.parent.mkdir(parents=True, exist_ok=True)
        for folder in (binary.parent, *go.cache_folders(toolchain)):
            cache.require_space(folder, gib=self.build_gib, purpose=f"building {name}")
        partial = binary.with_name(f".{name}.partial")
        log = binary.with_name(f"{name}.build.log")
        began = time.monotonic()
        with log.open("wb") as output:
            compiler = subprocess.Popen(
                [toolchain, "build", *self._flags(), "-o", partial, self.packages[name]],
                cwd=self.folder,
                env=go.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                _follow(compiler, name=name, began=began, report=report)
            finally:
                compiler.kill()
                compiler.wait()
        if compiler.returncode:
            tail = log.read_text(encoding="utf-8", errors="replace")[-1500:].rstrip()
            raise LabError(
                f"build of {name}", why=f"go exited with {compiler.returncode}\n{tail}", remedy=f"read {log}"
            )
        partial.replace(binary)
        report(f"built {name} in {time.monotonic() - began:.0f} s")

    def _flags(self) -> list[str]:
        linker = " ".join(f"-X {variable}={value}" for variable, value in self.stamps(self.version).items())
        tags = ["-tags", ",".join(self.tags)] if self.tags else []
        return ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {linker}", *tags]


def _follow(compiler: subprocess.Popen[bytes], *, name: str, began: float, report: Callable[[str], None]) -> None:
    """Wait for the compiler, and report progress at intervals."""
    while (elapsed := time.monotonic() - began) < BUILD_TIMEOUT_S:
        try:
            compiler.wait(timeout=HEARTBEAT_S)
        except subprocess.TimeoutExpired:
            report(f"building {name}: {time.monotonic() - began:.0f} s so far (the first time takes minutes)")
        else:
            return
    raise LabError(
        f"build of {name}", why=f"not finished after {elapsed:.0f} s", remedy="try again: compiled packages are kept"
    )
