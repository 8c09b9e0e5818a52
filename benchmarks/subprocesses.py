"""Run code in another process, so that the measured code and the measuring code do not share an interpreter."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_STARTED_S = 120.0
_ENDED_S = 10.0


@contextmanager
def running(main: Callable[..., None], *arguments: object, what: str) -> Iterator[tuple[int, Any]]:
    """Run `main(*arguments, pipe)` in a process until the block ends; yield its process ID and its first message.

    Raises:
        SystemExit: the process sent no message in time.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=main, args=(*arguments, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(_STARTED_S):
            raise SystemExit(f"{what} did not start in {_STARTED_S:g} s")
        yield process.pid or 0, ours.recv()
    finally:
        process.terminate()
        process.join(_ENDED_S)
