"""A lock for lab commands: two at a time would start and stop each other's processes."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def exclusive(path: Path, *, holder: str, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Hold the lock on `path` during the block; the kernel releases it if this process dies.

    The file is not removed, because two processes could then lock two files of the same name.

    Args:
        path: the lock file.
        holder: the name of this command, for the error message of another one.
        wait: called with a message before waiting for the holder; without it, a held lock is an error.

    Raises:
        LabError: another process holds the lock, and `wait` is None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            other = file.read().strip() or "another lab command"
            if wait is None:
                raise LabError(
                    f"{path.parent} is in use",
                    why=f"{other} is running",
                    remedy="wait until it has finished, or stop it",
                ) from None
            wait(f"waiting for {other}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{holder} (pid {os.getpid()})\n")
        file.flush()
        yield
