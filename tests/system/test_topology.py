"""Claims whose cards have to be connected, from the fleet file to the cards of a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import ALLOCATED
from lab import kubectl, wait
from lab.files import write_private
from tests.support import gpu_command
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace
from tests.system.support import simulated_nodes
from tests.system.test_claim_pods import claim_pod, waits_for
from tests.system.test_leases import holders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = "gpu-sim-islands"
CARDS = [
    {
        "index": index,
        "memoryMiB": 81920,
        "numa": index // 4,
        "island": ("fast", "slow")[index // 4],
        "bandwidthGBps": (600, 64)[index // 4],
    }
    for index in range(8)
]
FAST = {"mode": "Required", "minBandwidthGBps": 600}


@pytest.fixture(scope="module")
def islands(tranche: Layout) -> Iterator[str]:
    """An additional simulated node whose cards are in two islands, of which one is faster."""
    fleet_file = tranche.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    with simulated_nodes.running(tranche, NODE):
        write_private(fleet_file, before + yaml.safe_dump({NODE: CARDS}))
        wait.until(lambda: len(devices(tranche)) == 8, what="its cards", timeout_s=PATIENCE_S)
        yield NODE
        write_private(fleet_file, before)


@pytest.fixture(autouse=True)
def _free_cards(tranche: Layout) -> None:
    """All cards are free: a Lease ends a moment after its pod."""
    wait.until(lambda: not holders(tranche), what="the end of the Leases", timeout_s=PATIENCE_S)


def devices(layout: Layout) -> list[dict[str, Any]]:
    """Return the cards that the agent reports of the node."""
    text = kubectl.run(layout, "get", "gpunodestatus", NODE, "--ignore-not-found", "-o", "json")
    found: list[dict[str, Any]] = json.loads(text).get("status", {}).get("devices", []) if text else []
    return found


def claim(name: str, count: int, topology: dict[str, Any], **devices_: Any) -> dict[str, Any]:
    """Return a claim for cards of the node with islands."""
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {
            "devices": {"count": count, **devices_},
            "topology": topology,
            "selector": {"matchLabels": {"kubernetes.io/hostname": NODE}},
        },
    }


def cards(namespace: Namespace, name: str) -> str:
    """Wait until a pod has cards, and return their indexes."""

    def allocated() -> str | None:
        return namespace.pod(name)["metadata"].get("annotations", {}).get(ALLOCATED)

    return wait.until(allocated, what=f"cards of {name}", timeout_s=PATIENCE_S)


def gpu(namespace: Namespace, *arguments: str) -> str:
    """Run `kubectl gpu` as administrator."""
    done = gpu_command.run(namespace.layout.kubeconfig, *arguments, "-n", namespace.name)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_required_waits_for_the_fast_island(islands: str, namespace: Namespace) -> None:
    """The second pod has enough free cards, but not of one island at 600 GB/s, until the first has ended."""
    namespace.create(claim("fast", 4, FAST), claim_pod("first", "fast"))
    assert cards(namespace, "first") == "0,1,2,3"
    drawn = gpu(namespace, "topology", islands).splitlines()
    assert drawn[0] == f"{islands}: 8 cards, 2 islands of 4, 64-600 GB/s between linked cards"
    assert drawn[2].split() == [
        *["0", "X", "600", "600", "600", "SYS", "SYS", "SYS", "SYS", "fast", "600", "0", "Healthy"],
        f"{namespace.name}/first",
    ]
    (described,) = json.loads(gpu(namespace, "topology", islands, "-o", "json"))["nodes"]
    assert described["cards"][0]["connections"][0] == {"card": 1, "way": "NVLink", "bandwidthGBps": 600}
    assert f"gpunodestatus.gpu.scheduling/{islands}\n" in gpu(namespace, "topology", "-o", "name")
    namespace.create(claim_pod("second", "fast"))
    waits_for(namespace, "second", "4/8 CardTopologyMismatch")
    assert "CardTopologyMismatch" in gpu(namespace, "explain", "second")
    namespace.remove("first")
    assert cards(namespace, "second") == "0,1,2,3"


def test_preferred_takes_what_is_left(islands: str, namespace: Namespace) -> None:
    """The fast island for the first pod, the slow one for the second; Ignore looks at indexes alone."""
    preferred = {"mode": "Preferred", "minBandwidthGBps": 600}
    namespace.create(claim("fast", 4, preferred), claim_pod("first", "fast"))
    assert cards(namespace, "first") == "0,1,2,3"
    namespace.create(claim_pod("second", "fast"))
    assert cards(namespace, "second") == "4,5,6,7"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"policy": "contiguous"}, "0,1"),
        ({"policy": "spread"}, "0,7"),
        ({"policy": "preferIds", "preferIds": [6, 5]}, "5,6"),
    ],
)
def test_policies_choose_cards(
    islands: str,
    namespace: Namespace,
    policy: dict[str, Any],
    expected: str,
) -> None:
    """Neighbours, cards as far apart as possible, or those of a list."""
    namespace.create(claim("two", 2, {}, **policy), claim_pod("two", "two"))
    assert cards(namespace, "two") == expected


def test_a_set_that_the_machine_does_not_have_is_refused_for_ever(
    islands: str,
    namespace: Namespace,
) -> None:
    """Five cards of one island do not exist on this node, whoever ends."""
    namespace.create(claim("five", 5, {"mode": "Required"}), claim_pod("five", "five"))
    waits_for(namespace, "five", "8/8 CardTopologyMismatch")
