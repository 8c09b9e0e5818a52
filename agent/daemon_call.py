"""Calls that may never return.

A driver call can block forever if the card has fallen off the bus. Each such call runs in a daemon thread of its own,
so that neither the other cards nor the exit of the process wait for it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def start(function: Callable[[], T], *, name: str) -> Future[T]:
    """Run `function` in a daemon thread called `name`; the future holds its result or its exception."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from here on the future cannot be cancelled

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 -- the caller of `result` raises it
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future
