"""One lab command at a time: two would start and stop each other's processes."""

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
    """Hold `path` for the time of the block; the kernel lets go of it when this process dies.

    The file stays: removing a lock file lets two processes hold two files of the same name.

    Args:
        path: the lock file.
        holder: who holds it, for the message that the next one gets.
        wait: wait for the holder rather than refuse, after telling this function who that is.

    Raises:
        LabError: somebody else holds it and there is no `wait`.
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
                    why=f"{other} is at work on it",
                    remedy="wait until it has finished, or stop it",
                ) from None
            wait(f"waiting for {other}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{holder} (pid {os.getpid()})\n")
        file.flush()
        yield
