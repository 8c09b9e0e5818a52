"""API writes per placed pod."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from lab import wait
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import audit

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def test_placed_pod_costs_one_write(tranche: Layout, namespace: Namespace) -> None:
    """The only writes are the Binding and events: no patch of the pod, no lock, no label."""
    names = [f"p{index}" for index in range(10)]
    namespace.create(*(pod(name, node="gpu-sim-1", gpu=1, gpumem=1000) for name in names))
    namespace.placed(10)

    def all_have_events() -> bool:
        written = audit.writes(tranche, namespace=namespace.name, user=audit.SCHEDULER)
        return sum(audit.what(each) == "events" for each in written) >= 10

    wait.until(all_have_events, what="an event for each pod", timeout_s=PATIENCE_S)
    written = audit.writes(tranche, namespace=namespace.name, user=audit.SCHEDULER)
    counts = Counter((audit.what(each), each["objectRef"].get("name")) for each in written)
    bindings = {name: count for (target, name), count in counts.items() if target == "pods/binding"}
    assert bindings == dict.fromkeys(names, 1)
    assert {target for target, _ in counts} == {"pods/binding", "events"}
