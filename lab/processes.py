"""Long-running processes that outlive the command that started them.

A daemon is the leader of a session of its own. Its record holds its process id together with the boot and the tick at
which it started: an id that the kernel has given to somebody else since is never mistaken for it. Every daemon and what
it spawns also carries the lab's folder in its environment, so that those whose record was never written, or whose
parent was killed, are found as well.
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
    from collections.abc import Callable, Mapping, Sequence

    from lab.layout import Layout

# The environment variable that marks a process as a lab's; it holds the lab's folder.
MARK = "TRANCHE_LAB_PROCESS_OF"
# kube-apiserver would wait a minute for its clients to end their watches, and a lab has nothing to lose.
GRACE_S = 3.0
KILL_S = 10.0
LOG_TAIL_LINES = 12


@dataclass(frozen=True, slots=True)
class Record:
    """Which process a daemon is."""

    boot: str
    pid: int
    started: int  # clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The record of a process that lives now."""
        status = Status.of(pid)
        return cls(boot=boot_id(), pid=pid, started=status.started) if status else None

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs. One that is our own child and has ended is reaped."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return Record.of(self.pid) == self


@dataclass(frozen=True, slots=True)
class Status:
    """What /proc/<pid>/stat tells about a living process (proc(5))."""

    group: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The status of a process, or None of one that has ended, reaped or not."""
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command's name stands in brackets and may itself hold brackets and spaces.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(group=int(fields[2]), started=int(fields[19]))


@dataclass(frozen=True, slots=True)
class Daemon:
    """One process of a lab, known by its name."""

    layout: Layout
    name: str

    @property
    def log(self) -> Path:
        """Where its standard output and standard error go."""
        return self.layout.logs / f"{self.name}.log"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs, whoever started it."""
        record = self._read()
        return record.pid if record is not None and record.is_alive else None

    @property
    def is_running(self) -> bool:
        """Whether it runs, whoever started it."""
        return self.pid is not None

    def start(self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start it unless it runs. It gets this process's environment and working directory, and `env` on top.

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
                remedy="run `python -m lab doctor`",
            ) from error
        if record := Record.of(pid):
            write_private(self._record, json.dumps(asdict(record)))

    def require_running(self) -> None:
        """Refuse to go on without it.

        Raises:
            LabError: it does not run; with the end of its log.
        """
        if not self.is_running:
            raise LabError(
                self.name, why=f"it has ended, its last words were\n{self.last_words()}", remedy=f"read {self.log}"
            )

    def last_words(self) -> str:
        """The end of its log, indented."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as lines:
                return "".join(f"    {line}" for line in deque(lines, maxlen=LOG_TAIL_LINES)).rstrip()
        except FileNotFoundError:
            return "    (it wrote nothing)"

    def stop(self, *, grace_s: float = GRACE_S) -> None:
        """End it and its process group, and return when they are gone. Harmless when it does not run.

        Raises:
            LabError: it survived even SIGKILL.
        """
        record = self._read()
        if record is not None and record.is_alive:
            _end(lambda: _group(record), what=self.name, grace_s=grace_s)
        self._record.unlink(missing_ok=True)

    @property
    def _record(self) -> Path:
        return self.layout.run / f"{self.name}.json"

    def _read(self) -> Record | None:
        try:
            return Record(**json.loads(self._record.read_bytes()))
        except FileNotFoundError:
            return None


def recorded(layout: Layout) -> list[Daemon]:
    """Every daemon with a record, in the order of their starts."""
    records = sorted(layout.run.glob("*.json"), key=lambda record: record.stat().st_mtime_ns)
    return [Daemon(layout=layout, name=record.stem) for record in records]


def marked() -> dict[int, Path]:
    """Every process of any lab on the machine, whether recorded or not, with its lab's folder."""
    prefix = f"{MARK}=".encode()
    return {
        pid: Path(os.fsdecode(variable.removeprefix(prefix)))
        for pid in _living()
        if pid != os.getpid()
        for variable in _environment(pid)
        if variable.startswith(prefix)
    }


def strays(layout: Layout) -> list[int]:
    """Processes that carry the lab's mark, whether recorded or not."""
    return [pid for pid, root in marked().items() if root == layout.root]


def stop_all(layout: Layout) -> None:
    """End every daemon, the last started first, then whatever else carries the lab's mark.

    Raises:
        LabError: a process survived even SIGKILL.
    """
    for daemon in reversed(recorded(layout)):
        daemon.stop()
    _end(lambda: strays(layout), what=f"processes of {layout.root}", grace_s=GRACE_S)


def _end(find: Callable[[], list[int]], *, what: str, grace_s: float) -> None:
    """Ask the processes that `find` answers to end, then make them, until it answers none."""
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
        for pid in find():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        try:
            wait.until(lambda: not find(), what=f"end of {what}", timeout_s=patience_s)
        except LabError:
            if number == signal.SIGKILL:
                raise LabError(
                    what, why=f"pids {find()} survived SIGKILL", remedy="see `ps -o pid,stat,wchan`"
                ) from None
        else:
            return


def _group(record: Record) -> list[int]:
    """The living processes of a daemon's group; its leader is reaped where it is our child."""
    _ = record.is_alive
    members = ((pid, Status.of(pid)) for pid in _living())
    return [pid for pid, status in members if status is not None and status.group == record.pid]


def _own_environment() -> dict[str, str]:
    """This process's environment, without its proxies: a lab's processes talk to this machine alone."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def _living() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with; none where it has ended or is not ours to read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
