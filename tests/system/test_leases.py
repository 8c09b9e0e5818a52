"""Pods with exclusive cards or MIG instances have a Lease for each, from before their Binding until their end."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import CLAIM
from cluster.resource import GPU_CLAIMS
from lab import wait
from lab.client import client
from tests.support.foreign_policies import MESSAGE, refusing
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-0"


def claim(name: str, **devices: Any) -> dict[str, Any]:
    """Return a GpuClaim."""
    head = {"apiVersion": GPU_CLAIMS.api_version, "kind": GPU_CLAIMS.kind}
    return {**head, "metadata": {"name": name}, "spec": {"devices": devices}}


def claiming(name: str, claim: str, *, gpu: int, node: str = NODE) -> dict[str, Any]:
    """Return a pod with a claim."""
    made = pod(name, node=node, gpu=gpu)
    made["metadata"]["annotations"] = {CLAIM: claim}
    return made


def holders(layout: Layout) -> dict[str, str]:
    """Return the holder of each Lease of a card, by its name."""
    found = client(layout).list("leases", namespace="tranche-system", labels="gpu.scheduling/managed=true")
    return {each["metadata"]["name"]: each["spec"]["holderIdentity"] for each in found}


def test_an_exclusive_pod_holds_a_lease_for_each_card_until_it_ends(tranche: Layout, namespace: Namespace) -> None:
    """All cards of a node; the next pod gets them when the first has ended, with Leases of its own."""
    namespace.create(claim("all", count=8))
    uids = []
    for name in ("first", "second"):
        namespace.create(claiming(name, "all", gpu=8))
    for _ in range(2):
        (placed,) = namespace.placed(1)
        uids.append(placed["metadata"]["uid"])
        assert holders(tranche) == {f"gpu-{NODE}-{index}": uids[-1] for index in range(8)}
        assert placed["metadata"]["annotations"]["gpu.scheduling/allocated"] == "0,1,2,3,4,5,6,7"
        namespace.delete("pod", placed["metadata"]["name"])
    assert len(set(uids)) == 2
    wait.until(lambda: not holders(tranche), what="the end of the Leases", timeout_s=PATIENCE_S)


def test_a_pod_with_a_mig_instance_holds_its_lease(tranche: Layout, namespace: Namespace, mig_node: str) -> None:
    """Its name ends with the first slice of the instance."""
    namespace.create(claim("instance", count=1, exclusivity="MIG"), claiming("mig", "instance", gpu=1, node=mig_node))
    (placed,) = namespace.placed(1)
    assert holders(tranche) == {f"gpu-{mig_node}-0.0": placed["metadata"]["uid"]}
    namespace.delete("pod", "mig")
    wait.until(lambda: not holders(tranche), what="the end of the Lease", timeout_s=PATIENCE_S)


def test_a_refused_binding_leaves_no_lease(tranche: Layout, namespace: Namespace) -> None:
    """A policy of the administrator refuses it; the event has its message."""
    with refusing(tranche, "binding", namespace=namespace.name):
        namespace.create(claim("two", count=2), claiming("refused", "two", gpu=2))
        note = namespace.until(functools.partial(_failure, "refused"), "events", what="the event")
        assert MESSAGE in note
        namespace.delete("pod", "refused")
        wait.until(lambda: not holders(tranche), what="the end of the Leases", timeout_s=PATIENCE_S)


def _failure(name: str, events: Mapping[str, Any]) -> str | None:
    """Return the message of the event about a Binding that failed."""
    about = (each for each in events.values() if each["involvedObject"]["name"] == name)
    return next((each["message"] for each in about if each["reason"] == "BindingFailed"), None)
