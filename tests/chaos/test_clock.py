"""Clock skew: it shifts a process's wall clock and leaves its monotonic clock alone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from chaos.clock import Clocks

if TYPE_CHECKING:
    from pathlib import Path

CLOCKS = (
    "import time, datetime\nprint(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)\n"
)


def shown(process: subprocess.Popen[str]) -> list[float]:
    """Return the clocks that a process reads."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return [float(each) for each in process.stdout.readline().split()]


def test_only_the_wall_clock_of_a_running_process_jumps(tmp_path: Path) -> None:
    """It jumps forward and back, in `time` and `datetime`; timeouts and Leases use the monotonic clock."""
    clocks = Clocks(tmp_path)
    program = f"import sys\nfor _ in sys.stdin:\n    exec({CLOCKS!r})"
    command, env = [sys.executable, "-c", program], {**os.environ, **clocks.env("one")}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wall, date, monotonic = shown(process)
        assert abs(wall - date) < 5
        for wrong in (600.0, -90.0, 0.0):
            clocks.put("one", wrong)
            wall_now, date_now, monotonic_now = shown(process)
            passed = monotonic_now - monotonic
            assert 0 <= passed < 60
            assert abs(wall_now - wall - wrong - passed) < 1
            assert abs(date_now - date - wrong - passed) < 1
        assert process.stdin is not None
        process.stdin.close()


def test_skew_affects_one_process_only(tmp_path: Path) -> None:
    """Each process has an offset of its own."""
    clocks = Clocks(tmp_path)
    one, two = clocks.env("one"), clocks.env("two")
    clocks.put("one", 600.0)
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", CLOCKS], env={**os.environ, **env}, capture_output=True, text=True, check=True
            ).stdout.split()[0]
        )
        for env in (one, two)
    ]
    assert 590 < times[0] - times[1] < 610
