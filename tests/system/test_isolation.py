"""What enforces a pod's limits, from the label of its namespace to a process in its container, on a real kubelet."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import yaml

from allocation.isolation import Isolation
from allocation.names import ALLOCATION, ISOLATION
from allocation.wire import environment, record
from lab import wait
from lab.client import client
from lab.connection import RefusedError
from lab.files import write_private
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]
SHARED = (Isolation.CUDA, Isolation.MPS, Isolation.HAMI_CORE)


@contextmanager
def offered(layout: Layout, *isolations: Isolation) -> Iterator[None]:
    """Let the agent of the real node offer these isolations."""
    fleet_file = layout.config / "fleet.yaml"
    before = fleet_file.read_text(encoding="utf-8")
    nodes = yaml.safe_load(before)
    nodes[layout.node_name] = {**nodes[layout.node_name], "isolation": [each.value for each in isolations]}

    def are(expected: set[str]) -> bool:
        return set(client(layout).get("gns", layout.node_name)["status"]["isolation"]) == {"none", *expected}

    write_private(fleet_file, yaml.safe_dump(nodes))
    wait.until(lambda: are({*isolations}), what=f"the report of {isolations}", timeout_s=PATIENCE_S)
    try:
        yield
    finally:
        write_private(fleet_file, before)
        wait.until(lambda: are(set()), what="the report of no isolation", timeout_s=PATIENCE_S)


def test_a_process_has_the_limits_of_the_isolation_of_its_pod(tranche_node: Layout, namespace: Namespace) -> None:
    """The namespace chooses `cuda`, two of its pods something else; the pods wait until their node offers it."""
    namespace.api.patch("namespace", namespace.name, {"metadata": {"labels": {ISOLATION: Isolation.CUDA}}})
    for isolation in SHARED:
        sent = pod(isolation, node=tranche_node.node_name, gpu=1, gpumem=3000, gpucores=30)
        if isolation is not Isolation.CUDA:
            sent["metadata"]["annotations"] = {ISOLATION: isolation}
        # Until the webhook knows the label, the API server refuses a pod that would go without.
        wait.until(lambda sent=sent: _is_created(namespace, sent), what=f"pod {isolation}", timeout_s=PATIENCE_S)
    for isolation in SHARED:
        reason = namespace.unplaced(isolation)
        assert f"isolation {isolation}: no agent of the node offers it" in reason
    with offered(tranche_node, *SHARED):
        namespace.ready(*SHARED)
        for isolation in SHARED:
            bound = namespace.pod(isolation)
            assert bound["metadata"]["annotations"][ISOLATION] == isolation
            shares = record.decode(bound["metadata"]["annotations"][ALLOCATION]).containers["main"]
            assert exec_environment(namespace, isolation) == environment.values(shares, isolation=isolation)


def _is_created(namespace: Namespace, sent: dict[str, object]) -> bool:
    try:
        namespace.create(sent)
    except RefusedError as error:
        if "which the admission webhook tranche-webhook did not write into the pod" not in error.message:
            raise
        return False
    return True
