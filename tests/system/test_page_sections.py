"""Each section of the page shows what there is in a real cluster, and follows it without a reload."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from allocation.names import CLAIM, GANG, GANG_MIN_MEMBERS
from lab.client import client
from lab.layout import Port
from tests.scheduler.support.claims import manifest as gpu_claim
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings
from tests.system.support.gpuquotas import set_quota
from tests.ui.support import browsers

if TYPE_CHECKING:
    from lab.layout import Layout
    from tests.ui.support.tabs import Tab

pytestmark = [pytest.mark.apiserver, pytest.mark.browser]

NODE = "gpu-sim-0"
CARD = f"GPU-{NODE}-0"


def populate(namespace: Namespace) -> None:
    """Create pods that have nodes and pods that wait, a gang that is incomplete, a claim, a quota and a binding."""
    namespace.api.apply(gpu_claim("shared", namespace=namespace.name))
    set_quota(namespace, "team", total={"maxPods": 50})
    claimed = pod("claimed", gpu=1)
    claimed["metadata"]["annotations"] = {CLAIM: "shared"}
    member = pod("member", gpu=1, gpumem=100)
    member["metadata"]["annotations"] = {GANG: "pair", GANG_MIN_MEMBERS: "2"}
    runs, waits = pod("runs", node=NODE, gpu=1, gpumem=1000, gpucores=10), pod("waits", gpu=1, gpumem=999999)
    namespace.create(runs, waits, claimed, member)
    namespace.placed(2)
    namespace.unplaced("waits")
    namespace.api.apply(gpubindings.binding("of-the-page", f"GPU-{NODE}-7", "page"))


def expected(namespace: str) -> dict[str, tuple[str, ...]]:
    """Return by the address of each section what it shows of the objects."""
    return {
        "fleet": ("Largest free slice", "Stranded memory"),
        "waiting": (f"{namespace}/waits", "CardInsufficientMemory", f"{namespace}/member"),
        "shares": (namespace, "50 pods", "Reserved and used", "GPU-hours"),
        "decisions": ("FilteringSucceed", f"{namespace}/runs"),
        "what-if": ("Where would it go?",),
        "gangs": ("pair",),
        "claims": (f"{namespace}/shared", f"{namespace}/claimed"),
        "bindings": ("of-the-page", f"GPU-{NODE}-7"),
        f"node/{NODE}": (f"{namespace}/runs", "Limits enforced by", "Connections"),
        f"card/{NODE}/{CARD}": ("Slices", "Connections"),
        f"pod/{namespace}/runs": (
            "Admitted",
            "Decided",
            "Bound",
            "Started",
            "NVIDIA_VISIBLE_DEVICES",
            "Limits enforced",
        ),
        f"pod/{namespace}/waits": ("What would help", "Nodes that do not take it"),
    }


async def check(url: str, namespace: Namespace) -> None:
    """Open each section, and see a pod come to one that is open."""
    async with browsers.running() as browser, browsers.opened(browser, url) as tab:
        for address, texts in expected(namespace.name).items():
            await tab.page.evaluate("(address) => { location.hash = `#/${address}`; }", address)
            for text in texts:
                await tab.shows(text, within="main")
            assert await tab.findings() == [], address
        await tab.section("What if")
        manifest = tab.page.get_by_label("Manifest of a pod")
        asked = await manifest.input_value()
        await manifest.fill(asked.replace("name: example", f"name: example\n  namespace: {namespace.name}", 1))
        await tab.page.get_by_text("Where would it go?").click()
        await tab.shows("It fits")
        await tab.page.get_by_text("What still fits at all?").click()
        await tab.shows("The largest slice")
        await follows(tab, namespace)


async def follows(tab: Tab, namespace: Namespace) -> None:
    """See a pod that is created while the section is open."""
    await tab.section("Waiting")
    await tab.shows(f"{namespace.name}/waits")
    await asyncio.to_thread(namespace.create, pod("comes", gpu=1, gpumem=999999))
    await tab.shows(f"{namespace.name}/comes")


def test_each_section_shows_a_real_cluster(tranche: Layout, namespace: Namespace) -> None:
    """By the port on loopback, in a real browser, without serious findings of axe-core."""
    browsers.require()
    with gpubindings.applied(tranche, "labelled"):
        try:
            populate(namespace)
            asyncio.run(check(f"http://127.0.0.1:{tranche.port(Port.SCHEDULER_UI)}/ui/", namespace))
        finally:
            client(tranche).delete_all("gpubindings")
