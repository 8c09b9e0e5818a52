"""The page of a cluster in use shows what is asked of it at a glance; `make screenshots` keeps what it looks like."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.scheduler.ui.pages import serving
from tests.ui.support.scene import scene

if TYPE_CHECKING:
    from tests.ui.conftest import Open
    from tests.ui.support.tabs import Tab

pytestmark = pytest.mark.browser

FOLDER = os.environ.get("SCREENSHOTS", "")
WAITING = {"train-large": "research", "tune-oversized": "speech", "embed-on-h100": "vision"}
DESKTOP = {"width": 1280, "height": 560}


async def keep(tab: Tab, name: str) -> None:
    """Write what the tab shows, if that is asked for."""
    if FOLDER:
        await tab.page.mouse.move(0, 0)
        await tab.page.screenshot(path=Path(FOLDER) / f"{name}.png", animations="disabled")


async def test_page_of_a_cluster_in_use(opened: Open) -> None:
    """The fleet with what is free, why each pod waits, and which pod has which slice of a card."""
    cluster = scene()
    async with serving(cluster) as site, opened(f"{site.url}ui/", viewport=DESKTOP) as tab:
        for name, team in WAITING.items():
            await cluster.waits(name, "no available node", team)
        await tab.shows("36 nodes")
        await tab.shows("1 unhealthy card")
        await keep(tab, "fleet")

        await tab.section("Waiting")
        for name, team in WAITING.items():
            await tab.shows(f"{team}/{name}")
        assert "CardInsufficientMemory" in await tab.text("main")
        await keep(tab, "waiting")

        node = cluster.shown("serve-00", "research")["spec"]["nodeName"]
        await tab.page.evaluate(f"location.hash = '#/node/{node}'")
        await tab.shows("research/serve-00")
        await keep(tab, "node")

        await tab.page.emulate_media(color_scheme="dark")
        await tab.page.evaluate("location.hash = '#/pod/speech/tune-oversized'")
        await tab.shows("Nodes that do not take it")
        await keep(tab, "pod")
