"""A process of the lab is started again, with other flags or after a crash."""

from __future__ import annotations

import functools
import os
import signal
from typing import TYPE_CHECKING

from lab import components, wait
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from lab.layout import Layout


def restart(layout: Layout, name: str, *flags: str, crash: bool = False) -> None:
    """End a process, or let it crash, and start it with these flags; return once it is ready."""
    component, daemon = components.component(layout, name), Daemon(layout, name)
    if crash:
        os.kill(daemon.pid, signal.SIGKILL)
    daemon.stop()
    daemon = components.start_replica(layout, component, *flags, name=name)
    ready = functools.partial(components.is_ready, component)
    wait.until(ready, what=f"{name} ready", timeout_s=PATIENCE_S, daemons=[daemon])
