"""The benchmark of a Deployment works on a real node; its figures mean nothing beside other tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks import deployment
from lab.client import client

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]


def test_both_deployments_run_and_nothing_is_left(tranche_node: Layout) -> None:
    """Ours through admission and the scheduler, the other with the stock kube-scheduler's count of devices."""
    row, sample = deployment.measure(tranche_node, pods=2, turns=1)
    (seconds,) = sample.seconds
    assert seconds > 0
    assert row.figure.startswith(f"{seconds:.2f} s, ")
    assert not {"bench-tranche", "bench-stock"} & {each["metadata"]["name"] for each in client(tranche_node).list("ns")}
    node = client(tranche_node).get("nodes", tranche_node.node_name)
    assert deployment.RESOURCE not in {**node["status"]["capacity"], **node["status"]["allocatable"]}
