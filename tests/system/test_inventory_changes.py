"""Reports that contradict each other or earlier reports while pods run: no card is allocated twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import ALLOCATION
from allocation.wire import record
from lab import fleet, kubectl, wait
from lab.client import client
from lab.files import write_private
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import simulated_nodes, truth
from tests.system.test_recovery import ended, settled, start_scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
HONEST = "gpu-sim-0"
CLAIMANT = "gpu-sim-claimant"
SHARED = fleet.card(HONEST, 0)


@pytest.fixture
def report(tranche: Layout) -> Iterator[Callable[[str, Any], None]]:
    """A function that makes the agent report other cards of a node; the previous report is restored afterwards."""
    file = tranche.config / "fleet.yaml"
    before = file.read_text(encoding="utf-8")

    def report(node: str, cards: Any) -> None:
        write_private(file, yaml.safe_dump({**yaml.safe_load(file.read_text(encoding="utf-8")), node: cards}))

    yield report
    write_private(file, before)
    wait.until(
        lambda: len(reported(tranche, HONEST)) == 8,
        what="the cards as before",
        timeout_s=PATIENCE_S,
    )
    settled(tranche)


@pytest.fixture
def second_claim(tranche: Layout) -> Iterator[str]:
    """An additional node that reports a card of another node."""
    device = {"id": 0, "uuid": SHARED, "memoryMiB": 81920}
    spec = {"nodeName": CLAIMANT}
    with simulated_nodes.running(tranche, CLAIMANT):
        client(tranche).apply(
            {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": CLAIMANT}, "spec": spec}
        )
        patch = json.dumps({"status": {"devices": [device]}})
        kubectl.run(tranche, "patch", "gpunodestatus", CLAIMANT, "--subresource=status", "--type=merge", "-p", patch)
        yield CLAIMANT
    settled(tranche)


def reported(layout: Layout, node: str) -> set[str]:
    """Return the UUIDs of the cards in a node's status."""
    devices = client(layout).get("gpunodestatus", node)["status"]["devices"]
    return {each["uuid"] for each in devices}


def until_reported(layout: Layout, node: str, *uuids: str) -> None:
    """Wait until a node's status has exactly these cards."""
    wait.until(lambda: reported(layout, node) == set(uuids), what=f"cards of {node}", timeout_s=PATIENCE_S)


def cards(placed: dict[str, Any]) -> list[str]:
    """Return the cards of a placed pod."""
    return [share.uuid for share in record.decode(placed["metadata"]["annotations"][ALLOCATION]).containers["main"]]


def test_card_reported_by_two_nodes_is_allocated_on_one(
    tranche: Layout, namespace: Namespace, second_claim: str
) -> None:
    """The later node accepts no pods and says why; the pod on the first node keeps its share, even after a restart."""
    holder = pod("holder", node=HONEST, gpu=1)
    holder["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": SHARED}
    namespace.create(holder, pod("there", node=second_claim, gpu=1, gpumem=100))
    why = f"node {second_claim} reports card {SHARED}, which node {HONEST} has already reported"
    wait.until(lambda: why in namespace.unplaced("there"), what="the reason of the second node", timeout_s=PATIENCE_S)
    namespace.create(pod("here", node=HONEST, gpu=1))
    placed = {each["metadata"]["name"]: cards(each) for each in namespace.placed(2)}
    assert placed["holder"] == [SHARED] != placed["here"]

    scheduler = Daemon(tranche, "scheduler")
    scheduler.stop()
    ended(tranche, scheduler)
    start_scheduler(tranche)
    second = pod("second", node=HONEST, gpu=1)
    second["metadata"]["annotations"] = {"nvidia.com/use-gpuuuid": SHARED}
    namespace.create(second)
    namespace.unplaced("second")
    assert len([each for each in namespace.pods() if each["spec"].get("nodeName")]) == 2


def test_replaced_cards_keep_the_shares_of_running_pods(
    tranche: Layout, namespace: Namespace, report: Callable[[str, Any], None]
) -> None:
    """Cards that vanish and return while pods run still belong to these pods; meanwhile the new card is allocated."""
    namespace.create(*(pod(f"old-{number}", node=HONEST, gpu=1) for number in range(8)))
    held = sorted(uuid for each in namespace.placed(8) for uuid in cards(each))
    report(HONEST, [{"index": 0, "uuid": "GPU-new", "memoryMiB": 1000}])
    until_reported(tranche, HONEST, "GPU-new")
    namespace.create(pod("new", node=HONEST, gpu=1))
    (new,) = [each for each in namespace.placed(9) if each["metadata"]["name"] == "new"]
    assert cards(new) == ["GPU-new"]
    settled(tranche)

    report(HONEST, {"count": 8, "memoryMiB": 81920})
    until_reported(tranche, HONEST, *held)
    settled(tranche)
    namespace.create(pod("late", node=HONEST, gpu=1, gpumem=100))
    assert "8/8 CardInsufficientMemory" in namespace.unplaced("late")
    assert truth.scheduler_counts(tranche)[held[0]][0] == 81920


def test_shrunken_card_has_no_free_memory(
    tranche: Layout, namespace: Namespace, report: Callable[[str, Any], None]
) -> None:
    """A report with less memory than pods hold leaves nothing free, and takes nothing from the pods."""
    holder = pod("holder", node=HONEST, gpu=1, gpumem=60000)
    namespace.create(holder)
    (found,) = namespace.placed(1)
    (uuid,) = cards(found)
    report(HONEST, [{"index": 0, "uuid": uuid, "memoryMiB": 50000}])
    until_reported(tranche, HONEST, uuid)
    namespace.create(pod("late", node=HONEST, gpu=1, gpumem=100))
    assert "1/1 CardInsufficientMemory" in namespace.unplaced("late")
    assert truth.scheduler_counts(tranche)[uuid][0] == 60000
