"""Long-running processes that outlive the command that started them.

Each daemon is the leader of its own session. Its record has the process ID together with the boot and the tick at which
it started, so a recycled process ID is never mistaken for the daemon. Every daemon and its children also have the lab's
folder in their environment, so that processes without a record, or with a killed parent, are found as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from lab import wait
from lab.errors import LabError
from lab.files import write_private
from lab.layout import boot_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lab.layout import Layout

# The environment variable that marks a process as a lab's; it holds the lab's folder.
MARK = "TRANCHE_LAB_PROCESS_OF"
# kube-apiserver would wait a minute for its clients to end their watches, which a lab does not need.
GRACE_S = 3.0
KILL_S = 10.0
LOG_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Record:
    """The identity of a daemon's process."""

    boot: str
    pid: int
    started: int  # clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the record of a living process, or None."""
        status = Status.of(pid)
        return cls(boot=boot_id(), pid=pid, started=status.started) if status else None

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process still runs. An exited child of this process is reaped."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return Record.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class Status:
    """The fields of /proc/<pid>/stat of a living process (proc(5))."""

    group: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the status of a process, or None if it has exited, reaped or not."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command name is in parentheses and may itself contain parentheses and spaces.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(group=int(fields[2]), started=int(fields[19]))


@dataclass(frozen=True, slots=True)
class Daemon:
    """A process of a lab, identified by its name."""

    layout: Layout
    name: str

    @property
    def log(self) -> Path:
        """The log file for its standard output and standard error."""
        return self.layout.logs / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process ID while it runs, also if another process started it."""
        record = self._read()
        return record.pid if record is not None and record.is_alive else None

    @property
    def is_running(self) -> bool:
        """Whether it runs, also if another process started it."""
        return self.pid is not None

    def start(self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start it unless it runs, with the environment and working directory of this process, and `env` in addition.

        Raises:
            LabError: the program cannot be executed.
        """
        if self.is_running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        arguments = [os.fspath(argument) for argument in argv]
        try:
            pid = os.posix_spawnp(
                arguments[0],
                arguments,
                {**_own_environment(), **(env or {}), MARK: str(self.layout.root)},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(self.log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError as error:
            raise LabError(
                self.name,
                why=f"{arguments[0]} cannot be executed ({error.strerror})",
                remedy="run `make doctor`",
            ) from error
        if record := Record.of(pid):
            write_private(self._record, json.dumps(asdict(record)))

    def require_running(self) -> None:
        """Raise an error if it does not run.

        Raises:
            LabError: it does not run; the cause has the end of its log.
        """
        if not self.is_running:
            raise LabError(
                self.name, why=f"it has exited, the end of its log is\n{self.log_tail()}", remedy=f"read {self.log}"
            )

    def log_tail(self) -> str:
        """Return the end of its log, indented."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                return "".join(f"    {line}" for line in deque(lines, maxlen=LOG_TAIL_LINES)).rstrip()
        except FileNotFoundError:
            return "    (the log is empty)"

    def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Stop it and its process group, and return when they are gone. Idempotent.

        Raises:
            LabError: it survived SIGKILL.
        """
        record = self._read()
        if record is not None and record.is_alive:
            _end(lambda: _group(record), what=self.name, grace_s=grace_s)
        self._record.unlink(missing_ok=True)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the process with SIGSTOP during the block; it must be running."""
        self.require_running()
        pid = self.pid
        assert pid is not None  # noqa: S101 -- for the type checker
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @property
    def _record(self) -> Path:
        return self.layout.run / f"{self.name}.json"

    def _read(self) -> Record | None:
        try:
            return Record(**json.loads(self._record.read_bytes()))
        except FileNotFoundError:
            return None


def recorded(layout: Layout) -> list[Daemon]:
    """Return every daemon with a record, in the order of their starts."""
    records = sorted(layout.run.glob("*.json"), key=lambda record: record.stat().st_mtime_ns)
    return [Daemon(layout=layout, name=record.stem) for record in records]


def marked() -> dict[int, Path]:
    """Return every process of any lab on the machine, recorded or not, with the folder of its lab."""
    prefix = f"{MARK}=".encode()
    return {
        pid: Path(os.fsdecode(variable.removeprefix(prefix)))
        for pid in _living()
        if pid != os.getpid()
        for variable in _environment(pid)
        if variable.startswith(prefix)
    }


def strays(layout: Layout) -> list[int]:
    """Return the processes with the lab's mark in their environment, recorded or not."""
    return [pid for pid, root in marked().items() if root == layout.root]


def stop_all(layout: Layout, *, but: Collection[str] = ()) -> None:
    """Stop every daemon, the last started first, then all other processes with the lab's mark.

    Args:
        layout: the lab.
        but: the names of the daemons that go on.

    Raises:
        LabError: a process survived SIGKILL.
    """
    spared = {daemon.pid for daemon in recorded(layout) if daemon.name in but}
    for daemon in reversed(recorded(layout)):
        if daemon.name not in but:
            daemon.stop()

    def others() -> list[int]:
        found = ((pid, Status.of(pid)) for pid in strays(layout))
        return [pid for pid, status in found if status is not None and status.group not in spared]

    _end(others, what=f"processes of {layout.root}", grace_s=GRACE_S)


def _end(find: Callable[[], list[int]], *, what: str, grace_s: float) -> None:
    """Send SIGTERM to the processes that `find` returns, then SIGKILL, until it returns none."""
    for number, timeout_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
        for pid in find():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            wait.until(lambda: not find(), what=f"end of {what}", timeout_s=timeout_s)
        except LabError:
            if number == signal.SIGKILL:
                raise LabError(
                    what, why=f"pids {find()} survived SIGKILL", remedy="see `ps -o pid,stat,wchan`"
                ) from None
        else:
            return


def _group(record: Record) -> list[int]:
    """Return the living processes of a daemon's group, and reap its leader if it is a child of this process."""
    _ = record.is_alive
    members = ((pid, Status.of(pid)) for pid in _living())
    return [pid for pid, status in members if status is not None and status.group == record.pid]


def _own_environment() -> dict[str, str]:
    """Return the environment of this process without proxies: a lab's processes connect to this machine only.

    They trust its authorities alone: reading the system's would take each Python process a tenth of a second.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return {**inherited, "SSL_CERT_FILE": os.devnull}


def _living() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    """Return the initial environment of a process; nothing if it has exited or reading is forbidden."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
