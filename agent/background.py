"""Calls that may never return.

A driver call about a card that has fallen off the bus can block for good. Such a call runs in a thread of its own that
ends with the process, so that neither the other cards nor the end of the process wait for it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def start(function: Callable[[], T], *, name: str) -> Future[T]:
    """Run `function` in a daemon thread called `name`; the answer is in the future, or its exception."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # it cannot be taken back

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 -- it is raised where the result is asked for
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
