"""The process that runs the control daemon of MPS: what it starts, what it leaves, and when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent import isolation, mps_daemon
from agent.settings import AgentSettings
from lab import wait
from tests.cuda import mps_control
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

PIPES = "pipes"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the process, so that the path of its socket is short."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "control-daemon"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {mps_control.__file__} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    (tmp_path / "logs").mkdir()
    return tmp_path


def started(*arguments: str) -> subprocess.Popen[str]:
    """Start the process; `arguments` are further ones of the daemon."""
    flags = [f"--mps-pipe-directory={PIPES}", "--mps-program=./control-daemon", "--mps-log-directory=logs"]
    flags += [f"--mps-arguments={','.join(arguments)}"] if arguments else []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "agent.mps_daemon", *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


@contextmanager
def serving(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the process for the block, once the agent finds its daemon."""
    process = started(*arguments)
    try:
        until_it_listens()
        yield process
    finally:
        process.kill()
        process.communicate()


def until_it_listens() -> None:
    """Wait until the agent finds a daemon."""
    wait.until(lambda: not isolation.mps_problem(PIPES), what="the daemon", timeout_s=PATIENCE_S)


def failure(*arguments: str) -> str:
    """Run the process, which must fail, and return its last words."""
    process = started(*arguments)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    return errors.splitlines()[-1]


def test_the_agent_offers_mps_while_the_daemon_runs(folder: Path) -> None:
    """In the foreground, with the directory that containers get; at SIGTERM it quits and leaves no socket."""
    with serving("-p", "3") as process:
        assert (folder / "logs" / "arguments").read_text() == "-f -p 3"
        assert (folder / PIPES).stat().st_mode & 0o777 == 0o755
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert (folder / "logs" / "ended").exists()
    assert isolation.mps_problem(PIPES) == "pipes/control: No such file or directory"


def test_a_daemon_that_ends_by_itself_is_a_failure(folder: Path) -> None:
    """The kubelet starts the process again, and its pod shows the reason."""
    assert failure("fail") == ("error: ./control-daemon ended with code 3: the reason is above, or in its logs in logs")


def test_the_socket_of_a_killed_daemon_does_not_keep_the_next_from_starting(folder: Path) -> None:
    """It is in a folder of the host, which outlives the container."""
    (folder / PIPES).mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{PIPES}/control")
    with serving():
        pass


def test_a_second_daemon_does_not_take_the_clients_of_the_first(folder: Path) -> None:
    """An administrator may run one already; the message says where."""
    with serving():
        assert failure() == (
            "error: another control daemon of MPS listens at pipes/control: end it, or set agent.mps_pipe_directory"
        )
        assert not isolation.mps_problem(PIPES)


def test_a_missing_program_is_named(folder: Path) -> None:
    """NVIDIA's runtime brings it, if the pod has its RuntimeClass."""
    (folder / "control-daemon").unlink()
    assert failure().startswith("error: ./control-daemon: No such file or directory: NVIDIA's runtime brings it")


async def test_a_daemon_that_does_not_quit_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that hangs must not keep a node from being drained."""
    monkeypatch.setattr(mps_daemon, "QUIT_SECONDS", 0.1)
    settings = AgentSettings(
        mps_pipe_directory=PIPES,
        mps_program="./control-daemon",
        mps_arguments=("deaf",),
        mps_log_directory="logs",
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(mps_daemon.serve(settings, stop))
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(until_it_listens)
        stop.set()
        await serving
    assert "did not quit within" in caplog.text
