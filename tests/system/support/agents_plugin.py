"""The agent's own plugin, registered with the real node's container runtime."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agent.nri.enforcement import Enforcement
from agent.nri.memory_limits import MemoryLimits
from agent.nri.plugin import Plugin
from agent.settings import AgentSettings
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

REGISTERED = {"mode": "nri", "isRegistered": True}
"""The delivery that its agent reports."""


@contextmanager
def running(
    layout: Layout, settings: AgentSettings | None = None, limits: MemoryLimits | None = None
) -> Iterator[None]:
    """Run it for the block, with the settings of an agent; `limits` are the driver's, if it sets them."""
    registered = threading.Event()
    plugin = Plugin(
        layout.nri_socket,
        enforcement=Enforcement(settings or AgentSettings()),
        limits=limits,
        on_change=registered.set,
        on_undelivered=lambda _: None,
    )
    loop = asyncio.new_event_loop()
    task = loop.create_task(plugin.run())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run, name="the agent's plugin")
    thread.start()
    try:
        assert registered.wait(PATIENCE_S), "the container runtime did not accept the plugin"
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE_S)
