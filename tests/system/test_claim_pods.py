"""Pods that name a GpuClaim, from admission to their cards: forged, with several containers, and without the claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION, CLAIM
from allocation.wire import record
from lab import wait
from lab.errors import LabError
from tests.policies.support.pods import prepared
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from allocation.allocation import Allocation

pytestmark = pytest.mark.apiserver

NODE = "gpu-sim-1"
GATE = {"schedulingGates": [{"name": "tests/claims"}]}


def claim(name: str, count: int = 1, **devices: Any) -> dict[str, Any]:
    """Return a GpuClaim for `count` cards, with further fields of its devices."""
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"count": count, **devices}, "selector": {"matchLabels": {"kubernetes.io/hostname": NODE}}},
    }


def claim_pod(name: str, claim_name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that names a claim and requests nothing itself."""
    made = pod(name)
    made["metadata"]["annotations"] = {CLAIM: claim_name}
    made["spec"] |= spec
    return made


def allocated(placed: dict[str, Any]) -> Allocation:
    """Return the allocation of a pod."""
    return record.decode(placed["metadata"]["annotations"][ALLOCATION])


def open_gates(namespace: Namespace, name: str) -> None:
    """Let the scheduler have a gated pod."""
    namespace.patch("pod", name, {"spec": {"schedulingGates": None}})


def waits_for(namespace: Namespace, name: str, words: str) -> None:
    """Wait until the condition of a pod has these words."""
    try:
        wait.until(lambda: words in namespace.unplaced(name), what=f"{name} waits: {words}", timeout_s=PATIENCE_S)
    except LabError:
        assert words in namespace.unplaced(name)


def admits(namespace: Namespace, name: str, count: int) -> None:
    """Wait until admission gives pods the cards of a claim that was created again."""

    def is_seen() -> bool:
        (created,) = namespace.api.create(claim_pod("new", name), namespace=namespace.name, dry_run=True)
        return bool(created["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == str(count))

    wait.until(is_seen, what=f"admission knows the new claim {name}", timeout_s=PATIENCE_S)


@pytest.mark.parametrize("name", ["four", "missing"])
def test_handmade_claim_pod_is_held(plain_namespace: Namespace, name: str) -> None:
    """Nobody opted in, so only the scheduler compares the pod with its claim, or finds none."""
    plain_namespace.create(claim("four", 4))
    sent = prepared()
    del sent["spec"]["schedulingGates"]
    sent["metadata"]["annotations"] = {CLAIM: name}
    plain_namespace.create(sent)
    words = {"four": "GpuClaim four gives 4", "missing": "GpuClaim missing does not exist"}
    waits_for(plain_namespace, "p", words[name])


def test_claim_deleted_before_the_decision(namespace: Namespace) -> None:
    """The pod waits for it, and is placed when it exists again."""
    namespace.create(claim("short"))
    namespace.create(claim_pod("waits", "short", **GATE))
    namespace.delete("gpuclaim", "short")
    open_gates(namespace, "waits")
    waits_for(namespace, "waits", "GpuClaim short does not exist")
    namespace.create(claim("short"))
    (placed,) = namespace.placed(1)
    assert placed["spec"]["nodeName"] == NODE


def test_claim_replaced_before_the_decision(namespace: Namespace) -> None:
    """What admission wrote for the first is not what the second gives; a new pod gets the second."""
    namespace.create(claim("changes"))
    namespace.create(claim_pod("old", "changes", **GATE))
    namespace.delete("gpuclaim", "changes")
    namespace.create(claim("changes", 2))
    open_gates(namespace, "old")
    waits_for(namespace, "old", "GpuClaim changes gives 2")
    admits(namespace, "changes", 2)
    namespace.create(claim_pod("new", "changes"))
    (placed,) = namespace.placed(1)
    assert len(allocated(placed).containers["main"]) == 2


def test_claim_deleted_after_the_decision(namespace: Namespace) -> None:
    """The allocation is the pod's, whatever becomes of the claim."""
    namespace.create(claim("past"))
    namespace.create(claim_pod("runs", "past"))
    (before,) = namespace.placed(1)
    namespace.delete("gpuclaim", "past")
    namespace.create(claim("past", 8))
    admits(namespace, "past", 8)
    namespace.create(claim_pod("next", "past"))
    waits_for(namespace, "next", "7/8 AllocatedCardsInsufficientRequest")
    assert allocated(namespace.pod("runs")) == allocated(before)
    assert allocated(before).claim is not None


def test_all_gpu_containers_of_a_claim_pod_have_the_same_cards(namespace: Namespace) -> None:
    """Two containers, a sidecar and an init container share all cards of a node, each of which is charged once."""
    namespace.create(claim("all", 8))
    sent = claim_pod("shares", "all")
    (main,) = sent["spec"]["containers"]
    asking = {**main, "resources": {"limits": {"nvidia.com/gpu": 8}}}
    sent["spec"]["containers"] = [asking, {**asking, "name": "second"}, {**main, "name": "blind"}]
    sent["spec"]["initContainers"] = [
        {**asking, "name": "first", "command": ["true"]},
        {**asking, "name": "side", "restartPolicy": "Always"},
    ]
    namespace.create(sent)
    (placed,) = namespace.placed(1)
    containers = allocated(placed).containers
    assert set(containers) == {"main", "second", "first", "side"}
    assert len(set(containers.values())) == 1
    annotations = placed["metadata"]["annotations"]
    for name in containers:
        assert annotations[f"cuda-visible-devices.gpu.scheduling/{name}"] == "0,1,2,3,4,5,6,7"
    assert annotations["gpu.scheduling/allocated"] == "0,1,2,3,4,5,6,7"
