"""The base of the image from Debian packages, for machines that cannot pull one: Python, and no shell.

Packages are extracted and not configured: no script of theirs runs, so the result depends on nothing but the packages.
The tar archive is kept in the cache. Debian's mirrors replace packages over time; dpkg's status file in the archive
says which versions it has.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

from lab import cache
from lab.errors import LabError
from lab.lock import exclusive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUITE = "bookworm"
# numpy needs libstdc++6, ctypes needs libffi8.
PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6", "libgcc-s1", "libffi8")
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
# What dpkg would have written if it had installed the packages.
STATUS = (
    'for package in "$1"/var/cache/apt/archives/*.deb; do'
    ' dpkg-deb --field "$package" Package Version Architecture; echo;'
    ' done > "$1/var/lib/dpkg/status"'
)
TIMEOUT_S = 900.0


def provide(report: Callable[[str], None]) -> Path:
    """Return the archive, and make it if it is not cached.

    Raises:
        LabError: mmdebstrap failed, for example because no mirror can be reached.
    """
    command = _command()
    archive = cache.folder() / f"base-{SUITE}-{hashlib.sha256(chr(0).join(command).encode()).hexdigest()[:12]}.tar"
    with exclusive(cache.folder() / "base.lock", holder="a build of the image's base", wait=report):
        if not archive.exists():
            cache.require_space(archive, gib=0.5, purpose="the image's base")
            report(f"building the image's base from Debian {SUITE} packages")
            partial = archive.with_name(f".{archive.stem}.partial.tar")
            done = subprocess.run(
                [*command, partial],
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
                env={**os.environ, "SOURCE_DATE_EPOCH": "0"},
            )
            if done.returncode:
                raise LabError(
                    "base of the image",
                    why=done.stderr.strip()[-1500:],
                    remedy="check that apt-get can download packages, or set BASE to an image with Python 3.11",
                )
            partial.replace(archive)
    return archive


def _command() -> list[str]:
    return [
        "mmdebstrap",
        "--variant=extract",
        f"--include={','.join(PACKAGES)}",
        *(f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT),
        f"--extract-hook={STATUS}",
        SUITE,
    ]
