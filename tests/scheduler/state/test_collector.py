"""Metrics of holds, gangs, GPUBindings, GpuQueues, GpuQuotas, and other DRA drivers."""

from itertools import product
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.names import QUEUE
from allocation.settings import AllocationSettings, BindingSettings, BindingsMode
from cluster.dra import DeviceClass, ResourceClaim, ResourceSlice
from cluster.events import Recorder
from cluster.gpu_binding import GpuBinding
from scheduler.fairness.quota_use import LimitUse
from scheduler.holds import Hold, HoldCause
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.state.cluster_state import ClusterState
from scheduler.state.collector import StateCollector
from tests.scheduler.support import dra
from tests.scheduler.support.builders import Clock, allocated, namespace, node, pod, state, status
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.quotas import gpu_quota

COMPLETE = {"uuid": "GPU-n1-0", "appName": "chat", "namespace": "ns-a", "podSelector": {}, "memory": "24k"}


def binding(name: str, **changed: Any) -> GpuBinding:
    """Return a binding without a problem, changed by what is given; None removes a field."""
    spec = {key: value for key, value in {**COMPLETE, **changed}.items() if value is not None}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GpuBinding)


class Term:
    """A current term without locks."""

    def __init__(self, mode: BindingsMode = "off") -> None:
        self.state: ClusterState = state("n1", settings=AllocationSettings(bindings=BindingSettings(mode=mode)))
        self.kube_scheduler: KubeSchedulerLease | None = None
        self.locks = self
        self.queued = 0
        self.ages: list[float] = []


def registry(term: Term) -> CollectorRegistry:
    """Return the metrics of a leader."""
    made = CollectorRegistry()
    recorder = Recorder(cast("Any", None), component="", instance="")
    made.register(StateCollector(term=lambda: term, recorder=recorder))
    return made


@pytest.mark.parametrize(
    ("problem", "changed"),
    [
        ("UnknownCard", {"uuid": "GPU-gone"}),
        ("InvalidMemory", {"memory": "0"}),
        ("NoSelector", {"podSelector": None}),
        ("NoNamespace", {"namespace": None}),
    ],
)
def test_bindings_are_counted_by_problem(problem: str, changed: dict[str, Any]) -> None:
    """A binding that gives nothing, or trusts every namespace, is visible without reading the objects."""
    term = Term("required")
    term.state.bindings.set(binding("good"))
    term.state.bindings.set(binding("bad", **changed))
    metrics = registry(term)
    name = "tranche_scheduler_gpu_binding_problems"
    assert metrics.get_sample_value("tranche_scheduler_gpu_bindings") == 2
    assert metrics.get_sample_value(name, {"problem": problem}) == 1
    assert sum(sample.value for family in metrics.collect() if family.name == name for sample in family.samples) == 1
    term.state.bindings.drop(binding("bad"))
    assert metrics.get_sample_value(name, {"problem": problem}) == 0


def test_off_exports_no_metric_of_bindings() -> None:
    """The scheduler does not read bindings then: a count of 0 would be wrong."""
    names = {family.name for family in registry(Term()).collect()}
    assert "tranche_scheduler_gpu_claims" in names
    assert not [name for name in names if "binding" in name]


def test_gangs_are_counted_by_their_state() -> None:
    """Users name gangs, so no series names one."""
    term = Term()
    for index, (gang, size) in enumerate((("a", 1), ("a", 1), ("b", 2), ("c", 1))):
        keys = {"gpu.scheduling/gang-min-members": str(size)}
        term.state.set_pod(pod(f"m{index}", memory=9, labels={"gpu.scheduling/gang": gang}, annotations=keys))
    metrics = registry(term)

    def count(state: str) -> float | None:
        return metrics.get_sample_value("tranche_scheduler_gangs", {"state": state})

    assert [count(each) for each in ("Waiting", "Incomplete", "Partial", "Running", "Binding", "Finished")] == [
        *(2.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    ]


def test_holds_are_counted_by_their_reason() -> None:
    """Two pods preempt others, one has waited for longer than its queue's patience, and none is moved."""
    term = Term()
    causes: tuple[tuple[str, HoldCause], ...] = (("a", "preemption"), ("b", "preemption"), ("c", "patience"))
    for name, cause in causes:
        waiting = pod(name, memory=1000)
        charges = (Charge("GPU-n1-0", 1000, 0, 1),)
        hold = Hold(waiting.uid, QueueKey(namespace="default"), (0, 0), "n1", charges, frozenset({"other"}), cause)
        term.state.holds.add(hold, waiting)
    metrics = registry(term)

    def count(reason: str) -> float | None:
        return metrics.get_sample_value("tranche_scheduler_holds", {"reason": reason})

    assert (count("preemption"), count("patience"), count("consolidation")) == (2, 1, 0)


def test_queues_show_what_they_have_and_are_entitled_to() -> None:
    """Of two cards, one queue has one and wants more, with three times the weight of the namespace's own queue."""
    term = Term()
    term.state.limits.set_queue(gpu_queue("team", weight=3))
    term.state.limits.set_queue(gpu_queue("idle"))
    term.state.set_pod(allocated("runs", node="n1", memory=1000, labels={QUEUE: "team"}))
    for name in ("first", "second"):
        term.state.set_pod(pod(name, memory=1000, labels={QUEUE: "team"}))
    term.state.set_pod(allocated("other", node="n1", card=1, memory=500))
    metrics = registry(term)

    def values(queue: str) -> list[float | None]:
        kinds = ("share_ratio", "entitlement_ratio", "running_pods", "waiting_pods")
        return [metrics.get_sample_value(f"tranche_queue_{kind}", {"queue": queue}) for kind in kinds]

    assert values("team") == [0.5, 0.75, 1, 2]
    assert values("idle") == [0, 0.2, 0, 0]


def test_no_series_is_named_after_a_namespace() -> None:
    """Users create namespaces, and their own queues share like others; only GpuQueues have series."""
    term = Term()
    term.state.set_pod(allocated("a", node="n1", memory=1000, namespace="team-a"))
    term.state.set_pod(pod("b", memory=1000, namespace="team-b", labels={QUEUE: "unknown"}))
    assert not [family.name for family in registry(term).collect() if family.name.startswith("tranche_queue")]
    term.state.limits.set_queue(gpu_queue("team"))
    families = [family for family in registry(term).collect() if family.name.startswith("tranche_queue")]
    assert {sample.labels["queue"] for family in families for sample in family.samples} == {"team"}
    assert len(families) == 4


def test_quotas_show_what_is_left_of_each_limit_and_when_it_is_too_little() -> None:
    """Exactly as much as the threshold leaves is not less than that, in floating-point numbers, too."""
    term = Term()
    limits = {"nvidia.com/gpumem": 1000, "nvidia.com/gpu": 0}
    term.state.limits.set_gpu_quota(gpu_quota("q", namespace="team", total={"limits": limits, "maxPods": 4}))
    term.state.limits.set_gpu_quota(gpu_quota("other", namespace="team", total={"alertThresholdPercent": 80}))
    term.state.set_pod(allocated("runs", node="n1", memory=950, namespace="team"))
    metrics = registry(term)

    def left(resource: str) -> float | None:
        labels = {"namespace": "team", "quota": "q", "resource": resource}
        return metrics.get_sample_value("tranche_quota_available_ratio", labels)

    assert (left("nvidia.com/gpumem"), left("pods"), left("nvidia.com/gpu")) == (0.05, 0.75, float("-inf"))
    for quota, ratio in (("q", 0.05), ("other", 0.2)):
        labels = {"namespace": "team", "quota": quota}
        assert metrics.get_sample_value("tranche_quota_alert_ratio", labels) == ratio


def test_the_alert_agrees_with_the_condition() -> None:
    """At every threshold: what is left as a float is less than the ratio if and only if it is in exact integers."""
    for threshold, total in product(range(101), (3, 7, 100, 300, 81_920)):
        for held in {total * threshold // 100 + change for change in (-1, 0, 1)}:
            use = LimitUse("nvidia.com/gpumem", total, max(0, held))
            assert (use.available_ratio < (100 - threshold) / 100) == use.is_nearly_full(threshold), (
                threshold,
                total,
                held,
            )


def test_nodes_that_should_have_an_agent_and_report_nothing_are_counted() -> None:
    """By the label that has the agent run there; a node whose driver is gone is closed for that reason instead."""
    term = Term()
    for name, labels in (("n1", {"gpu": "on"}), ("n2", {"gpu": "tranche"}), ("n3", {}), ("n4", {"gpu": "on"})):
        term.state.set_node(node(name, metadata={"name": name, "labels": labels}))
    term.state.drop_node(node("n4"))
    metrics = registry(term)
    assert metrics.get_sample_value("tranche_scheduler_unreported_nodes") == 1
    gone = status("n2")
    assert gone.status is not None
    gone.status.state = "DriverMissing"
    term.state.agent_reports.set(gone)
    assert metrics.get_sample_value("tranche_scheduler_unreported_nodes") == 0
    assert metrics.get_sample_value("tranche_scheduler_closed_nodes", {"reason": "DriverMissing"}) == 1


def test_missing_queues_are_counted_by_the_namespaces_that_name_them() -> None:
    """A queue was deleted while it was in use: all new pods of these namespaces wait. What pods name has no series."""
    term = Term()
    for name, queue in (("a", "gone"), ("b", "gone"), ("c", "team"), ("d", "")):
        term.state.limits.set_namespace(namespace(name, **{QUEUE: queue} if queue else {}))
    term.state.set_pod(pod("p", memory=1000, labels={QUEUE: "of-a-pod"}))
    term.state.limits.set_queue(gpu_queue("team"))
    assert _missing(term) == {"gone": 2}
    term.state.limits.drop_queue(gpu_queue("team"))
    assert _missing(term) == {"gone": 2, "team": 1}
    term.state.limits.set_queue(gpu_queue("gone"))
    assert _missing(term) == {"team": 1}


def test_series_of_missing_queues_have_a_bound() -> None:
    """In a self-service cluster users write these labels; the names of most namespaces are shown."""
    term = Term()
    for number in range(100):
        term.state.limits.set_namespace(namespace(f"one-{number}", **{QUEUE: f"queue-{number}"}))
    for number in range(2):
        term.state.limits.set_namespace(namespace(f"two-{number}", **{QUEUE: "gone"}))
    assert len(_missing(term)) == 20
    assert _missing(term)["gone"] == 2


def _missing(term: Term) -> dict[str, float]:
    families = [each for each in registry(term).collect() if each.name == "tranche_missing_queue_namespaces"]
    return {each.labels["queue"]: each.value for family in families for each in family.samples}


def test_devices_and_classes_of_dra_drivers_are_counted() -> None:
    """By what the ledger makes of a device; by resource, those that no class satisfies as well."""
    term = Term()
    term.state = made = state("n1", foreign_drivers=(dra.DRIVER,))
    made.set_pod(allocated("p", node="n1", memory=100))
    made.foreign_devices.set_slice(msgspec.convert(dra.slice_of("n1", "GPU-n1-0", "GPU-n1-1"), ResourceSlice))
    for index in range(4):
        claim = dra.claim(f"c-{index}", "n1", f"gpu-{index}")
        made.foreign_devices.set_claim(msgspec.convert(claim, ResourceClaim))
    made.device_classes.set(msgspec.convert(dra.device_class(), DeviceClass))
    shown = registry(term)
    name = "tranche_dra_foreign_allocations"
    counts = {each: shown.get_sample_value(name, {"state": each}) for each in ("counted", "double_booked", "unknown")}
    assert counts == {"counted": 1, "double_booked": 1, "unknown": 2}
    resources = made.settings.resources.managed()
    classes = {each: shown.get_sample_value("tranche_dra_device_classes", {"resource": each}) for each in resources}
    assert classes == {**dict.fromkeys(resources, 0), "nvidia.com/gpu": 1}


def test_card_seconds_are_exported_by_namespace_and_queue() -> None:
    """The own queue of a namespace is empty; the name is that of a counter."""
    clock = Clock()
    term = Term()
    term.state = state("n1", clock=clock)
    term.state.set_pod(allocated("a", node="n1", memory=500, namespace="team"))
    clock.now += 10
    labels = {"namespace": "team", "queue": ""}
    assert registry(term).get_sample_value("tranche_allocated_card_seconds_total", labels) == 5
