"""A process from its start to its end: the log, the signals that end it, and what it says where it cannot run."""

import asyncio
import gc
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress

import uvloop

from cluster import logs
from cluster.logs import LogSettings


def run(
    work: Callable[[asyncio.Event], Coroutine[None, None, None]],
    *,
    log: LogSettings,
    failures: tuple[type[Exception], ...],
) -> None:
    """Do `work`, which is given what SIGTERM and SIGINT set.

    One of `failures` ends the process with exit code 1, and what it says on standard error: it is meant for who
    started it.
    """
    logs.set_up(log)
    allow_files()
    try:
        uvloop.run(_run(work))  # a review takes it a sixth less of a processor than the loop of Python
    except failures as error:
        sys.exit(f"error: {error}")


def allow_files() -> None:
    """Let the process open as many files as it may: a connection is one, and many systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # a limit that the kernel does not go to
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def until(stop: asyncio.Event, *works: Coroutine[None, None, None]) -> None:
    """Let `works` run until `stop` is set; a defect that ends one earlier ends the process with it."""
    tasks = [*map(asyncio.create_task, works), asyncio.ensure_future(stop.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def settle() -> None:
    """Take what there is now, modules above all, as there to stay: garbage is no longer looked for among it.

    A look at all of it takes some 50 ms, in which nothing is answered, and comes whenever enough was made since. What
    was there to stay before and is garbage by now is collected first.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def _run(work: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await work(stop)
