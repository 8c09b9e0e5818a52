"""Kubernetes' own ResourceQuotas, where they limit what admission fills in, and requests that no quota allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import wait
from lab.errors import LabError
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NODE = "gpu-sim-1"


def limit(namespace: Namespace, **hard: str) -> None:
    """Create a ResourceQuota of GPU resources, and wait until the API server counts by it."""
    spec = {"hard": {f"limits.nvidia.com/{name}": amount for name, amount in hard.items()}}
    namespace.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": spec})
    namespace.until(lambda quotas: "hard" in quotas["team"].get("status", {}), "resourcequotas", what="a counted quota")


def test_memory_beyond_a_resource_quota_waits_until_a_pod_ends(tranche: Layout, namespace: Namespace) -> None:
    """Also the memory of a percentage, which is known only with the card."""
    limit(namespace, gpumem="50000")
    namespace.create(pod("half", node=NODE, gpu=1, percentage=50))
    namespace.placed(1)
    namespace.create(pod("more", node=NODE, gpu=1, percentage=20))
    assert "ResourceQuotaNotFit" in namespace.unplaced("more")
    namespace.delete("pods", "half")
    namespace.placed(1)


def test_pod_that_no_state_of_the_quota_allows_is_refused(tranche: Layout, namespace: Namespace) -> None:
    """Its owner learns it as soon as the webhook knows the quota, with the name of the quota."""
    limit(namespace, gpumem="1000")

    def refusal() -> str | None:
        try:
            namespace.api.create(pod("large", gpu=1, gpumem=1001), namespace=namespace.name, dry_run=True)
        except LabError as error:
            return error.why
        return None

    why = wait.until(refusal, what="a refusal", timeout_s=PATIENCE_S)
    assert "team" in why
    assert "1000" in why
    assert namespace.pods() == []


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"gpu": 1, "percentage": 101}, "nvidia.com/gpumem-percentage"), ({"gpu": -1}, "nvidia.com/gpu")],
)
def test_impossible_amounts_are_refused(
    tranche: Layout, namespace: Namespace, limits: dict[str, int], words: str
) -> None:
    """The message names the resource."""
    with pytest.raises(LabError, match=words):
        namespace.create(pod("impossible", **limits))


def test_pod_without_containers_is_refused(tranche: Layout, namespace: Namespace) -> None:
    """By a message about its containers, whoever looks first."""
    empty = pod("empty")
    empty["spec"]["containers"] = []
    with pytest.raises(LabError, match="containers"):
        namespace.create(empty)
