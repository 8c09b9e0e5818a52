"""The start and the end of a process."""

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
    """Run a process that executes `act` and then waits for its end."""
    program = PROGRAM.format(act=act, level=level, format=format)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_ends_the_process_cleanly(name: str) -> None:
    """The process ends its work, and exits with 0."""
    done = run(KILLED.format(name=name))
    assert done.returncode == 0
    assert [line.split("logger=test ")[1] for line in done.stderr.splitlines()] == ["msg=begins pod=a/b", "msg=ends"]


def test_level_and_format_are_configurable() -> None:
    """A higher level writes fewer lines; JSON has the same fields."""
    done = run(KILLED.format(name="SIGTERM"), level="warning", format="json")
    (line,) = done.stderr.splitlines()
    assert '"level": "warning", "logger": "test", "msg": "ends"' in line


def test_expected_failure_prints_its_message() -> None:
    """The exit code is 1; an unexpected exception shows its traceback."""
    failed, broken = run("raise OSError('port taken')"), run("raise KeyError('defect')")
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "error: port taken")
    assert broken.returncode == 1
    assert "Traceback" in broken.stderr


async def test_failing_task_ends_the_others() -> None:
    """A process does not continue with a part of its tasks."""
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


def test_frozen_objects_are_skipped_by_garbage_collection() -> None:
    """Objects that become garbage later are still collected."""
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


def test_objects_that_stay_are_not_visited_while_they_are_made() -> None:
    """They are frozen at the end, and full collections are as frequent as before."""
    program = """
import gc
from cluster import process
before, full = gc.get_threshold(), gc.get_stats()[2]["collections"]
with process.settling():
    kept = [[number] for number in range(300_000)]
    assert gc.get_stats()[2]["collections"] == full
    assert gc.get_stats()[1]["collections"] > 20
assert gc.get_freeze_count() > 300_000
assert gc.get_threshold() == before
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
