"""One process under test: started, stopped in order, killed, frozen and thawed."""

import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from chaos.proxy import Proxy
from lab import health, wait
from lab.processes import Daemon

_END_SECONDS = 30.0
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Replica:
    """A process and its way to the API server.

    Attributes:
        daemon: the process.
        role: scheduler, webhook, agent.
        argv: how it is started.
        env: on top of the environment.
        http: where it serves health and metrics, a URL.
        proxy: what its requests pass.
    """

    daemon: Daemon
    role: str
    argv: tuple[str, ...]
    http: str
    proxy: Proxy
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the process."""
        return self.daemon.name

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self.daemon.pid

    def start(self) -> None:
        """Start it unless it runs."""
        self.daemon.start(self.argv, env=self.env)

    def until_ready(self) -> None:
        """Wait until it says that it is ready.

        Raises:
            LabError: it has ended, or takes too long.
        """
        wait.until(
            lambda: health.probe(f"{self.http}/readyz"),
            what=f"{self.name} ready",
            timeout_s=_READY_SECONDS,
            daemons=[self.daemon],
        )

    def kill(self) -> None:
        """End it without a word, and wait for the end: its ports must be free."""
        self.signal(signal.SIGKILL)
        wait.until(lambda: self.pid is None, what=f"end of {self.name}", timeout_s=_END_SECONDS)

    def stop(self) -> None:
        """Ask it to end, and wait for the end."""
        self.daemon.stop(grace_s=_END_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        pid = self.pid
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
