"""GpuQuotas also hold for pods that the webhook has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.client import client
from tests.support.refusals import refusal
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
MEMORY = "nvidia.com/gpumem"


def quota(namespace: Namespace, **spec: Any) -> dict[str, Any]:
    """Return a GpuQuota of a namespace."""
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQuota"}
    return {**head, "metadata": {"name": "team", "namespace": namespace.name}, "spec": spec}


def prepared(namespace: Namespace, sent: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as the webhook would change it, so that it can be created while the webhook is down."""
    (changed,) = namespace.api.create(sent, namespace=namespace.name, dry_run=True)
    return {**sent, "spec": changed["spec"]}


def test_quota_is_not_avoided_without_the_webhook(
    tranche: Layout, namespace: Namespace, request: pytest.FixtureRequest
) -> None:
    """The scheduler checks the limits again, and a pod that lacks the defaults is refused by the API server."""
    greedy = prepared(namespace, pod("greedy", gpu=1, gpumem=1001))
    second = prepared(namespace, pod("second", gpu=1, gpumem=1000))
    first = prepared(namespace, pod("first", gpu=1, gpumem=1000))
    limits = {MEMORY: 1000}
    request.getfixturevalue("dead_webhook")
    client(tranche).apply(quota(namespace, total={"limits": limits}, single={"limits": limits, "defaults": limits}))
    namespace.create(greedy)
    assert "GpuQuota team: spec.single.limits" in namespace.unplaced("greedy")
    namespace.create(first)
    namespace.placed(1)
    namespace.create(second)
    assert "GpuQuota team" in namespace.unplaced("second")
    assert "tranche-webhook" in refusal(lambda: namespace.create(pod("silent", gpu=1)))
