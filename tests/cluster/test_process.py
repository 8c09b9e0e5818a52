"""How a process begins and ends, whichever it is."""

import asyncio
import subprocess
import sys

import pytest

from cluster import process

PROGRAM = """
import asyncio, logging, os, signal
from cluster import process
from cluster.logs import LogSettings

async def work(stop):
    logging.getLogger("test").info("begins", extra=dict(pod="a/b"))
    {act}
    await stop.wait()
    logging.getLogger("test").warning("ends")

process.run(work, log=LogSettings(level="{level}", format="{format}"), failures=(OSError,))
"""
KILLED = "os.kill(os.getpid(), signal.{name})"


def run(act: str, *, level: str = "info", format: str = "logfmt") -> subprocess.CompletedProcess[str]:  # noqa: A002
    """Run a process that does something before it waits for its end."""
    program = PROGRAM.format(act=act, level=level, format=format)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_in_order(name: str) -> None:
    """What it was doing is told, and it exits with 0."""
    done = run(KILLED.format(name=name))
    assert done.returncode == 0
    assert [line.split("logger=test ")[1] for line in done.stderr.splitlines()] == ["msg=begins pod=a/b", "msg=ends"]


def test_level_and_format_are_settings() -> None:
    """Less is said at a higher level; JSON has the same fields."""
    done = run(KILLED.format(name="SIGTERM"), level="warning", format="json")
    (line,) = done.stderr.splitlines()
    assert '"level": "warning", "logger": "test", "msg": "ends"' in line


def test_a_failure_is_told_to_who_started_it() -> None:
    """One line and exit code 1; a defect, which nobody foresaw, shows its traceback."""
    failed, broken = run("raise OSError('port taken')"), run("raise KeyError('defect')")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "error: port taken")
    assert broken.returncode == 1
    assert "Traceback" in broken.stderr


async def test_a_work_that_breaks_ends_the_others() -> None:
    """A process does not go on with half of its work."""
    ended = asyncio.Event()

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def breaks() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await process.until(asyncio.Event(), goes_on(), breaks())
    assert ended.is_set()


def test_a_settled_process_looks_for_garbage_only_among_what_is_new() -> None:
    """What stays is not looked at again; what is dropped later is still found."""
    program = """
import gc, weakref
from cluster import process
class Ring: pass
process.settle()
assert gc.get_freeze_count() > 10 * len(gc.get_objects()), (gc.get_freeze_count(), len(gc.get_objects()))
ring = Ring(); ring.own = ring; seen = weakref.ref(ring); del ring
gc.collect()
assert seen() is None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
