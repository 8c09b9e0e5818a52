"""One process under test, which can be started, stopped, killed, frozen and thawed."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from chaos.proxy import Proxy
from lab import health, wait
from lab.processes import Daemon

_END_SECONDS = 30.0
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Replica:
    """A process and its proxy to the API server.

    Attributes:
        daemon: the process.
        role: scheduler, webhook or agent.
        argv: the command.
        env: additional environment variables.
        http: URL at which it serves health and metrics.
        proxy: the proxy for its requests to the API server.
    """

    daemon: Daemon
    role: str
    argv: tuple[str, ...]
    http: str
    proxy: Proxy
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the process."""
        return self.daemon.name

    @property
    def pid(self) -> int | None:
        """The process ID while the process runs."""
        return self.daemon.pid

    def start(self) -> None:
        """Start the process unless it runs."""
        self.daemon.start(self.argv, env=self.env)

    def until_ready(self) -> None:
        """Wait until the process reports ready.

        Raises:
            LabError: the process has ended, or is not ready in time.
        """
        wait.until(
            lambda: health.probe(f"{self.http}/readyz"),
            what=f"{self.name} ready",
            timeout_s=_READY_SECONDS,
            daemons=[self.daemon],
        )

    def kill(self) -> bool:
        """Send SIGKILL and wait for the end, so that its ports are free; return whether the process ran."""
        ran = self.signal(signal.SIGKILL)
        wait.until(lambda: self.pid is None, what=f"end of {self.name}", timeout_s=_END_SECONDS)
        return ran

    def stop(self) -> None:
        """Send SIGTERM and wait for the end."""
        self.daemon.stop(grace_s=_END_SECONDS)

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal if the process runs; return whether it does."""
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True
