from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab import processes, wait
from lab.errors import LabError
from lab.layout import Layout
from lab.processes import Daemon, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = ["sleep", "300"]


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """A lab of which nothing survives the test."""
    layout = Layout(root=tmp_path, base_port=25000)
    yield layout
    processes.stop_all(layout)


def exists(pid: int) -> bool:
    """Whether a process lives."""
    return processes.Status.of(pid) is not None


def test_started_daemon_runs_in_a_session_of_its_own(layout: Layout) -> None:
    """A terminal's Ctrl-C does not reach a daemon."""
    daemon = Daemon(layout, "sleeper")
    daemon.start(SLEEP)
    assert daemon.pid is not None
    assert os.getsid(daemon.pid) == daemon.pid


def test_starting_what_runs_changes_nothing(layout: Layout) -> None:
    """A second start leaves the first process alone."""
    daemon = Daemon(layout, "sleeper")
    daemon.start(SLEEP)
    first = daemon.pid
    daemon.start(SLEEP)
    assert daemon.pid == first


def test_both_outputs_go_to_the_log(layout: Layout) -> None:
    """Standard output and standard error are in one file under the daemon's name."""
    daemon = Daemon(layout, "speaker")
    daemon.start(["sh", "-c", "echo out; echo err >&2; exec sleep 300"])
    wait.until(lambda: daemon.log.read_text() == "out\nerr\n", what="both lines", timeout_s=10)


def test_stopped_daemon_is_gone_with_its_children(layout: Layout) -> None:
    """A stop returns when the whole process group has ended, and forgets it."""
    daemon = Daemon(layout, "parent")
    daemon.start(["sh", "-c", "sleep 300 & echo $!; wait"])
    child = int(wait.until(lambda: daemon.log.read_text().strip(), what="pid", timeout_s=10))
    parent = daemon.pid
    assert parent is not None
    daemon.stop()
    assert not exists(parent)
    assert not exists(child)
    assert not daemon.is_running
    daemon.stop()


def test_deaf_daemon_is_killed(layout: Layout) -> None:
    """Who ignores SIGTERM gets SIGKILL when the time is over."""
    daemon = Daemon(layout, "deaf")
    daemon.start(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 300; done"])
    wait.until(daemon.log.read_text, what="trap", timeout_s=10)
    pid = daemon.pid
    assert pid is not None
    daemon.stop(grace_s=0.2)
    assert not exists(pid)


@pytest.mark.parametrize("difference", [{"started": -1}, {"boot": "another"}])
def test_recycled_pid_is_never_killed(layout: Layout, difference: dict[str, object]) -> None:
    """A process that has the recorded pid, but another start or boot, is somebody else's and lives on."""
    with subprocess.Popen(SLEEP, start_new_session=True) as stranger:
        record = Record.of(stranger.pid)
        assert record is not None
        layout.run.mkdir()
        content = {"boot": record.boot, "pid": record.pid, "started": record.started, **difference}
        (layout.run / "old.json").write_text(json.dumps(content))
        daemon = Daemon(layout, "old")
        assert not daemon.is_running
        daemon.stop()
        processes.stop_all(layout)
        assert stranger.poll() is None
        stranger.kill()


def test_another_process_stops_what_this_one_started(layout: Layout) -> None:
    """`down` works from another process than `up`, also when that one was killed."""
    script = (
        "import os, signal, pathlib, lab.layout, lab.processes\n"
        f"layout = lab.layout.Layout(pathlib.Path({str(layout.root)!r}), {layout.base_port})\n"
        f"lab.processes.Daemon(layout, 'orphan').start({SLEEP!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    pid = Daemon(layout, "orphan").pid
    assert pid is not None
    processes.stop_all(layout)
    assert not exists(pid)


def test_daemon_without_a_record_is_found_by_its_mark(layout: Layout) -> None:
    """A process whose record was lost is still this lab's, and no other lab's."""
    daemon = Daemon(layout, "lost")
    daemon.start(SLEEP)
    pid = daemon.pid
    assert pid is not None
    (layout.run / "lost.json").unlink()
    assert processes.strays(layout) == [pid]
    assert processes.strays(Layout(root=layout.root / "other")) == []
    processes.stop_all(layout)
    assert not exists(pid)


def test_death_ends_a_wait_with_the_last_words(layout: Layout) -> None:
    """Who waits for a process that dies reads why, and where the rest is."""
    daemon = Daemon(layout, "mortal")
    daemon.start(["sh", "-c", "echo port in use >&2; exit 3"])
    with pytest.raises(LabError, match=r"mortal: it has ended(?s:.*)port in use(?s:.*)read .*mortal\.log"):
        wait.until(lambda: False, what="a miracle", timeout_s=10, daemons=[daemon])


def test_deadline_names_what_was_waited_for() -> None:
    """A wait that is given up says for what and for how long."""
    with pytest.raises(LabError, match=r"a miracle: waited 0\.1 s in vain"):
        wait.until(lambda: False, what="a miracle", timeout_s=0.1)


def test_missing_program_is_said_at_once(layout: Layout) -> None:
    """A program that cannot be executed is an error of the start."""
    with pytest.raises(LabError, match=r"ghost: /nonexistent cannot be executed \(No such file"):
        Daemon(layout, "ghost").start(["/nonexistent"])


def test_proxies_do_not_reach_a_daemon(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's processes talk to this machine alone, whatever the user's environment says."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    daemon = Daemon(layout, "printer")
    daemon.start(["sh", "-c", 'echo "proxy=$HTTPS_PROXY extra=$EXTRA"; exec sleep 300'], env={"EXTRA": "yes"})
    wait.until(lambda: daemon.log.read_text() == "proxy= extra=yes\n", what="environment", timeout_s=10)
