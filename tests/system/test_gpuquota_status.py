"""How a GpuQuota is seen on a real API server: its status, its condition and the events about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.fleet import SIMULATED_NODES
from lab.processes import Daemon
from tests.system.conftest import Namespace, pod
from tests.system.support.gpuquotas import set_quota

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = SIMULATED_NODES[0]
MEMORY, CARDS = "nvidia.com/gpumem", "nvidia.com/gpu"
REMOVE_MEMORY = {"op": "remove", "path": "/spec/total/limits/nvidia.com~1gpumem"}


def status(namespace: Namespace, name: str, *, generation: int = 1, **used: int) -> dict[str, Any]:
    """Wait until the status of a quota is about this spec and has these amounts of memory or cards."""
    wanted = {{"memory": MEMORY, "cards": CARDS}[key]: amount for key, amount in used.items()}

    def shown(quotas: Mapping[str, Any]) -> dict[str, Any] | None:
        found: dict[str, Any] = quotas[name].get("status", {})
        counts = found.get("used", {})
        return found if found.get("observedGeneration") == generation and counts == wanted else None

    return namespace.until(shown, "gpuquotas", what=f"the status of quota {name} with {wanted}")


def ready(shown: dict[str, Any]) -> tuple[str, str, str]:
    """Return the status, the reason and the message of the condition."""
    (condition,) = (each for each in shown["conditions"] if each["type"] == "Ready")
    assert condition["type"] == "Ready"
    return condition["status"], condition["reason"], condition["message"]


def events(namespace: Namespace, count: int) -> list[tuple[str, str, str]]:
    """Wait for as many events about quotas, and return the reason, the name of the quota and the note of each."""

    def recorded(events: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        items = [each for each in events.values() if each["involvedObject"]["kind"] == "GpuQuota"]
        return items if len(items) == count else None

    found = namespace.until(recorded, "events", what=f"{count} events about quotas")
    ordered = sorted(found, key=lambda each: str(each.get("eventTime") or each["metadata"]["creationTimestamp"]))
    return [(each["reason"], each["involvedObject"]["name"], each["message"]) for each in ordered]


def test_a_quota_that_is_created_under_running_pods_is_right_at_once(tranche: Layout, namespace: Namespace) -> None:
    """No restart is needed, neither for the status nor for the next pod that the quota has no room for."""
    pid = Daemon(tranche, "scheduler").pid
    namespace.create(*(pod(f"p{number}", node=NODE, gpu=1, gpumem=3000) for number in range(3)))
    namespace.placed(3)
    set_quota(namespace, "late", total={"limits": {MEMORY: 10_000, CARDS: 4}, "maxPods": 8})
    shown = status(namespace, "late", memory=9000, cards=3)
    assert shown["availablePercent"] == {MEMORY: "10.00", CARDS: "25.00", "pods": "62.50"}
    assert (shown["pods"], shown["fullest"], ready(shown)[:2]) == (3, MEMORY, ("True", "CapacitySufficient"))

    namespace.create(pod("more", node=NODE, gpu=1, gpumem=1001))
    assert "ResourceQuotaNotFit" in namespace.unplaced("more")
    namespace.delete("pod", "p0")
    assert status(namespace, "late", memory=7001, cards=3)["pods"] == 3
    assert Daemon(tranche, "scheduler").pid == pid


def test_the_alert_names_the_resource_and_clears(namespace: Namespace) -> None:
    """Exactly 5 percent are enough at a threshold of 95, one MiB less is not; an event says each change."""
    set_quota(namespace, "team", total={"limits": {MEMORY: 10_000, CARDS: 100}})
    namespace.create(pod("large", node=NODE, gpu=1, gpumem=9500))
    shown = status(namespace, "team", memory=9500, cards=1)
    assert shown["availablePercent"] == {MEMORY: "5.00", CARDS: "99.00"}
    assert ready(shown)[:2] == ("True", "CapacitySufficient")

    namespace.create(pod("last-straw", node=NODE, gpu=1, gpumem=1))
    message = f"less than 5% is left of {MEMORY} (4.99%: 9501 of 10000 used)"
    assert ready(status(namespace, "team", memory=9501, cards=2)) == ("False", "AlertThresholdReached", message)
    assert events(namespace, 1) == [("AlertThresholdReached", "team", message)]
    printed = namespace.kubectl("get", "gpuquota", "team").splitlines()[1].split()
    assert printed[:5] == ["team", "2", MEMORY, "95", "False"]

    namespace.delete("pod", "last-straw")
    assert ready(status(namespace, "team", memory=9500, cards=1))[0] == "True"
    assert [reason for reason, _, _ in events(namespace, 2)] == ["AlertThresholdReached", "CapacitySufficient"]


def test_two_quotas_of_a_namespace_have_their_own_conditions(namespace: Namespace) -> None:
    """The same pods fill one of them; a limit that is removed disappears, and with it the alert."""
    set_quota(namespace, "narrow", total={"limits": {MEMORY: 3000, CARDS: 9}})
    set_quota(namespace, "wide", total={"limits": {MEMORY: 30_000}})
    namespace.create(pod("p", node=NODE, gpu=1, gpumem=3000))
    narrow, wide = status(namespace, "narrow", memory=3000, cards=1), status(namespace, "wide", memory=3000)
    assert (narrow["availablePercent"][MEMORY], wide["availablePercent"]) == ("0.00", {MEMORY: "90.00"})
    assert (ready(narrow)[0], ready(wide)[0]) == ("False", "True")

    namespace.api.patch("gpuquota", "narrow", [REMOVE_MEMORY], namespace=namespace.name, by="json")
    changed = status(namespace, "narrow", generation=2, cards=1)
    assert (changed["fullest"], changed["availablePercent"]) == (CARDS, {CARDS: "88.88"})
    assert ready(changed)[0] == "True"
