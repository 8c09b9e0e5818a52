"""Cards that disappear under pods: their pods are deleted, all others stay, and a silent node says nothing."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from agent.publishing import publisher
from lab import kubeconfig, kubectl, wait
from lab.client import client
from lab.errors import LabError
from tests.support.foreign_policies import refusing
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import missing_devices, simulated_nodes
from tests.system.support.missing_devices import report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE, SILENT = "gpu-losing-0", "gpu-silent-0"
SYSTEM = "tranche-system"


@pytest.fixture(scope="module")
def losing(tranche: Layout) -> Iterator[Layout]:
    """The lab with two more nodes, and a scheduler that deletes pods whose card is gone."""
    with missing_devices.losing_node(tranche, NODE), simulated_nodes.running(tranche, SILENT):
        yield tranche


def card_of(placed: dict[str, Any]) -> int:
    """Return the index of a pod's card."""
    return int(placed["metadata"]["annotations"]["gpu.scheduling/allocated"])


def names(namespace: Namespace) -> set[str]:
    """Return the names of the pods."""
    return {each["metadata"]["name"] for each in namespace.pods()}


def test_pods_of_missing_cards_are_deleted_and_others_stay(losing: Layout, namespace: Namespace) -> None:
    """One card is reported as missing, another one not at all; a deletion that is refused does not stop the other."""
    report(losing, NODE, *({"index": index} for index in range(3)))
    namespace.create(*(pod(f"p-{number}", node=NODE, gpu=1) for number in range(3)))
    on = {card_of(each): each["metadata"]["name"] for each in namespace.placed(3)}
    with refusing(losing, "deletion", namespace=namespace.name, name=on[1]):
        report(losing, NODE, {"index": 0}, {"index": 2, "missing": True})
        wait.until(lambda: on[2] not in names(namespace), what="the pod's end", timeout_s=PATIENCE_S)
        assert names(namespace) == {on[0], on[1]}
    wait.until(lambda: on[1] not in names(namespace), what="the other pod's end", timeout_s=PATIENCE_S)
    assert names(namespace) == {on[0]}
    events = client(losing).list("events", namespace=namespace.name, fields="reason=DeviceMissing")
    assert {each["involvedObject"]["name"] for each in events} == {on[1], on[2]}


def test_a_silent_node_deletes_no_pod(losing: Layout, namespace: Namespace) -> None:
    """Its agent ended after a report without the pod's card: no agent vouches for it, and the node takes no pod."""
    report(losing, NODE, {"index": 0}, {"index": 1})
    publish(losing, cards=2, seconds=3600)
    namespace.create(*(pod(f"kept-{number}", node=SILENT, gpu=1) for number in range(2)))
    assert {card_of(each) for each in namespace.placed(2)} == {0, 1}
    publish(losing, cards=2, seconds=1)
    late = itertools.count()
    wait.until(lambda: is_closed(namespace, f"late-{next(late)}"), what="a closed node", timeout_s=PATIENCE_S)
    publish(losing, cards=1, seconds=None)
    # When the pod of a card that another node loses is gone, the scheduler has looked at all nodes since.
    namespace.create(*(pod(f"p-{number}", node=NODE, gpu=1) for number in range(2)))
    placed = namespace.placed(4)
    (goes,) = [each["metadata"]["name"] for each in placed if each["spec"]["nodeName"] == NODE and card_of(each) == 1]
    report(losing, NODE, {"index": 0})
    wait.until(lambda: goes not in names(namespace), what="the pod's end", timeout_s=PATIENCE_S)
    assert {"kept-0", "kept-1"} <= names(namespace)


def is_closed(namespace: Namespace, name: str) -> bool:
    """Whether the reason of a new pod is that the agent of the silent node is silent."""
    namespace.create(pod(name, node=SILENT, gpu=1, gpumem=1))
    return "is silent" in namespace.unplaced(name)


def publish(layout: Layout, *, cards: int, seconds: int | None) -> None:
    """Report as the agent of the silent node; its heartbeat is valid for `seconds`, None renews none."""
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuNodeStatus", "metadata": {"name": SILENT}}
    devices = [
        {
            "id": index,
            "uuid": f"GPU-{SILENT}-{index}",
            "memoryMiB": 40960,
            "cores": 1000,
            "slots": 10,
            "health": "Healthy",
        }
        for index in range(cards)
    ]
    client(layout).apply({**head, "spec": {"nodeName": SILENT}})
    status = {"status": {"devices": devices, "total": cards}}
    client(layout).patch("gpunodestatus", SILENT, status, subresource="status")
    if seconds is not None:
        client(layout).apply(publisher.heartbeat(SILENT, identity="test", seconds=seconds, unix=float(seconds)))


def test_the_schedulers_token_deletes_no_other_pod(losing: Layout, namespace: Namespace) -> None:
    """A thief of it deletes neither pods without cards, nor by name alone what has that name by then."""
    report(losing, NODE, {"index": 0})
    namespace.create(pod("waits", node="nowhere", gpu=1), pod("runs", node=NODE, gpu=1))
    namespace.placed(1)
    identity = kubeconfig.service_account_kubeconfig(losing, namespace=SYSTEM, name="tranche-scheduler")

    def delete(name: str, preconditions: dict[str, str]) -> None:
        path = f"/api/v1/namespaces/{namespace.name}/pods/{name}?dryRun=All"
        body = json.dumps({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
        kubectl.run(losing, "delete", "--raw", path, "-f", "-", stdin=body, kubeconfig=identity)

    uids = {name: {"uid": namespace.pod(name)["metadata"]["uid"]} for name in ("waits", "runs")}
    for name, preconditions in (("waits", {}), ("waits", uids["waits"]), ("runs", {})):
        with pytest.raises(LabError, match="the scheduler may delete only pods that have cards, by their UID"):
            delete(name, preconditions)
    delete("runs", uids["runs"])
