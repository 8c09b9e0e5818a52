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
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLEEP = ["sleep", "300"]


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    """A lab whose processes are stopped after the test."""
    layout = Layout(root=tmp_path, base_port=25000)
    yield layout
    processes.stop_all(layout)


def exists(pid: int) -> bool:
    """Whether a process is alive."""
    return processes.Status.of(pid) is not None


def test_a_daemon_has_its_own_session(layout: Layout) -> None:
    """Ctrl-C in the terminal does not reach a daemon."""
    daemon = Daemon(layout, "sleeper")
    daemon.start(SLEEP)
    assert daemon.pid is not None
    assert os.getsid(daemon.pid) == daemon.pid


def test_starting_a_daemon_is_idempotent(layout: Layout) -> None:
    """A second start keeps the first process."""
    daemon = Daemon(layout, "sleeper")
    daemon.start(SLEEP)
    first = daemon.pid
    daemon.start(SLEEP)
    assert daemon.pid == first


def test_standard_output_and_error_go_to_the_log(layout: Layout) -> None:
    """Both are written to one file with the daemon's name."""
    daemon = Daemon(layout, "speaker")
    daemon.start(["sh", "-c", "echo out; echo err >&2; exec sleep 300"])
    wait.until(lambda: daemon.log.read_text() == "out\nerr\n", what="both lines", timeout_s=PATIENCE_S)


def test_stop_ends_a_daemon_and_its_children(layout: Layout) -> None:
    """A stop returns when the whole process group has exited, and removes the record."""
    daemon = Daemon(layout, "parent")
    daemon.start(["sh", "-c", "sleep 300 & echo $!; wait"])
    child = int(wait.until(lambda: daemon.log.read_text().strip(), what="pid", timeout_s=PATIENCE_S))
    parent = daemon.pid
    assert parent is not None
    daemon.stop()
    assert not exists(parent)
    assert not exists(child)
    assert not daemon.is_running
    daemon.stop()


def test_a_daemon_that_ignores_sigterm_is_killed(layout: Layout) -> None:
    """After the grace period it receives SIGKILL."""
    daemon = Daemon(layout, "deaf")
    daemon.start(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 300; done"])
    wait.until(daemon.log.read_text, what="trap", timeout_s=PATIENCE_S)
    pid = daemon.pid
    assert pid is not None
    daemon.stop(grace_s=0.2)
    assert not exists(pid)


@pytest.mark.parametrize("difference", [{"started": -1}, {"boot": "another"}])
def test_a_recycled_pid_is_never_killed(layout: Layout, difference: dict[str, object]) -> None:
    """A process with the recorded process ID but another start time or boot is not the daemon."""
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


def test_a_daemon_can_be_stopped_by_another_process(layout: Layout) -> None:
    """`down` runs in another process than `up`, even if that one was killed."""
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


def test_a_daemon_without_a_record_is_found_by_its_mark(layout: Layout) -> None:
    """A process without a record still belongs to this lab, and to no other."""
    daemon = Daemon(layout, "lost")
    daemon.start(SLEEP)
    pid = daemon.pid
    assert pid is not None
    (layout.run / "lost.json").unlink()
    # Its environment is empty for a moment after its program has been loaded.
    wait.until(lambda: processes.strays(layout) == [pid], what="the process", timeout_s=PATIENCE_S)
    assert processes.strays(Layout(root=layout.root / "other")) == []
    processes.stop_all(layout)
    assert not exists(pid)


def test_daemons_may_go_on(layout: Layout) -> None:
    """All others stop, with a record or without; those that go on keep their children."""
    spared, stopped, lost = (Daemon(layout, name) for name in ("spared", "stopped", "lost"))
    spared.start(["sh", "-c", "sleep 300 & wait"])
    for daemon in (stopped, lost):
        daemon.start(SLEEP)
    ended = [daemon.pid for daemon in (stopped, lost)]
    (layout.run / "lost.json").unlink()
    wait.until(lambda: len(processes.strays(layout)) == 4, what="four processes", timeout_s=PATIENCE_S)
    processes.stop_all(layout, but={"spared"})
    left = processes.strays(layout)
    assert len(left) == 2
    assert spared.pid in left
    assert not any(pid is not None and exists(pid) for pid in ended)


def test_the_exit_of_a_daemon_ends_a_wait_with_its_log(layout: Layout) -> None:
    """The error has the end of the log and its path."""
    daemon = Daemon(layout, "mortal")
    daemon.start(["sh", "-c", "echo port in use >&2; exit 3"])
    with pytest.raises(LabError, match=r"mortal: it has exited(?s:.*)port in use(?s:.*)read .*mortal\.log"):
        wait.until(lambda: False, what="a miracle", timeout_s=10, daemons=[daemon])


def test_a_timeout_names_the_condition() -> None:
    """The error has the condition and the timeout."""
    with pytest.raises(LabError, match=r"a miracle: timed out after 0\.1 s"):
        wait.until(lambda: False, what="a miracle", timeout_s=0.1)


def test_a_missing_program_is_an_error_of_the_start(layout: Layout) -> None:
    """A program that cannot be executed does not become a failed wait later."""
    with pytest.raises(LabError, match=r"ghost: /nonexistent cannot be executed \(No such file"):
        Daemon(layout, "ghost").start(["/nonexistent"])


def test_a_daemon_has_no_proxies(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's processes connect to this machine only, so proxies of the user's environment are removed."""
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    daemon = Daemon(layout, "printer")
    daemon.start(["sh", "-c", 'echo "proxy=$HTTPS_PROXY extra=$EXTRA"; exec sleep 300'], env={"EXTRA": "yes"})
    wait.until(lambda: daemon.log.read_text() == "proxy= extra=yes\n", what="environment", timeout_s=PATIENCE_S)
