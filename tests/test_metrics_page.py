"""docs/operations.md lists exactly the metrics that the processes export."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from agent.measurement_metrics import MeasurementCollector
from agent.metrics import Metrics as AgentMetrics
from allocation.allocation import Charge
from allocation.inventory import NodeInventory
from allocation.ledger.ledger import Ledger
from allocation.settings import AllocationSettings, BindingSettings
from cluster.api import Api
from cluster.api_metrics import TrafficMetrics
from cluster.event_loop import PauseMonitor
from cluster.events import Recorder
from cluster.http import exposition
from cluster.measurement import NodeMeasurement
from cluster.resource_quota import ResourceQuota
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.measurements.collector import UseCollector
from scheduler.measurements.use_of_shares import UseOfShares
from scheduler.metrics.cards import FAMILIES
from scheduler.metrics.instruments import Metrics as SchedulerMetrics
from scheduler.settings import KubeSchedulerSettings
from scheduler.state.collector import StateCollector
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.claims import claim
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.quotas import gpu_quota
from webhook.metrics import Metrics as WebhookMetrics

PAGE = (Path(__file__).parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## Metrics\n")[2].partition("\n## ")[0]
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|(.*?)\| (.+?) \|$", re.MULTILINE)
FORBIDDEN = {"pod", "uid", "pod_uid", "name", "user", "container"}
MEASURED = {"tranche_agent_container_memory_used_bytes", "tranche_agent_container_utilization_ratio"}
"""An agent has at most `MOST_CONTAINERS` of these, and of real processes only."""


class Shown(NamedTuple):
    """A metric as Prometheus sees it."""

    name: str
    type: str
    labels: tuple[str, ...]


SETTINGS = AllocationSettings(bindings=BindingSettings(mode="required"), resource_claims="hand-over")


class Term:
    """A current term without locks."""

    def __init__(self) -> None:
        self.state = state("n1", settings=SETTINGS)
        self.state.set_claim(claim("c"))
        self.state.limits.set_queue(gpu_queue("team"))
        self.state.limits.set_gpu_quota(gpu_quota("team", total={"maxPods": 1}))
        self.kube_scheduler = KubeSchedulerLease(Api.__new__(Api), KubeSchedulerSettings())
        self.locks = self
        self.queued = 0
        self.ages = [1.0]


class Cache:
    """An empty cache."""

    plural = "pods"
    silent_seconds = 1.0

    def __len__(self) -> int:
        """Return 0."""
        return 0


def families(registry: CollectorRegistry) -> list[Shown]:
    """Return the metrics of a registry."""
    found = []
    for collector in cast("dict[Any, Any]", registry._collector_to_names):
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
            counted = family.type == "counter"
            found.append(Shown(family.name + "_total" * counted, family.type, tuple(labels)))
    return found


def shown() -> set[Shown]:
    """Return the metrics of all processes, without `process_*`."""
    scheduler = SchedulerMetrics()
    scheduler.show_cards(lambda: None)
    scheduler.registry.register(
        StateCollector(term=Term, recorder=Recorder(cast("Any", None), component="", instance=""))
    )
    use = UseOfShares(Ledger(), read_seconds=60.0, idle_seconds=600.0, clock=lambda: 0.0)
    scheduler.registry.register(UseCollector(lambda: use))
    exposition.register_process(scheduler.registry)
    scheduler.registry.register(PauseMonitor())
    agent = AgentMetrics()
    agent.registry.register(MeasurementCollector(lambda: NodeMeasurement("n1")))
    traffic = TrafficMetrics(scheduler.registry)
    with traffic.following(Cache()):
        found = [
            each
            for registry in (scheduler.registry, WebhookMetrics().registry, agent.registry)
            for each in families(registry)
        ]
    cards = [Shown(name, "gauge", family.labels) for name, family in FAMILIES.items()]
    return {each for each in (*found, *cards) if not each.name.startswith("process_")}


def documented() -> set[Shown]:
    """Return the metrics in the section of the page."""
    return {Shown(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(SECTION)}


def test_page_lists_every_metric() -> None:
    """Names, types and labels on the page are those of the registries."""
    assert documented() == shown()


def test_no_label_grows_with_pods_or_users() -> None:
    """A user who creates many pods creates no series, unless their processes use cards at the same time."""
    assert {each.name for each in shown() if FORBIDDEN & set(each.labels)} == MEASURED


async def test_cards_are_exported_from_the_ledger() -> None:
    """The series have HAMi's names, and label values are escaped."""
    made = state("n1")
    made.set_pod(pod("a", memory=1))
    metrics = SchedulerMetrics()
    metrics.show_cards(lambda: made.ledger)
    made.ledger.used[0, 0, 1] = 250
    text = (await exposition.text(metrics.registry)).decode()
    labels = 'zone="vGPU",node="n1",device_uuid="GPU-n1-1",device_index="1",device_type=""'
    assert f"hami_node_gpu_memory_allocated_ratio{{{labels}}} 0.25\n" in text
    size = 'device_cores="100",device_memory_limit="1000"'
    assert f"hami_node_gpu_overview{{{labels},{size}}} {250 * 2**20}\n" in text
    assert f"hami_gpu_memory_limit_bytes{{{labels}}} {1000 * 2**20}\n" in text
    assert 'tranche_scheduler_cards{state="usable"} 2.0\n' in text
    assert not re.search(r"_created(\{.*\})? ", text), "when a counter began"
    assert exposition.labels({"model": 'a"\\\nb'}) == r'{model="a\"\\\nb"}'


async def test_a_mig_instance_that_a_pod_has_is_exported_with_its_place_on_the_card() -> None:
    """By the UUID of its card, as DCGM has it; an instance that no pod has is left out."""
    made = state()
    cards = (mig_card(0), instance(0, "1g.5gb", 6), instance(0, "2g.10gb", 0))
    made.ledger.set_node(NodeInventory("n1", cards))
    metrics = SchedulerMetrics()
    metrics.show_cards(lambda: made.ledger)
    assert "hami_node_gpu_mig_instance_info{" not in (await exposition.text(metrics.registry)).decode()
    made.ledger.record("uid-a", "n1", [Charge(cards[1].uuid, 100, 100, 1, parent=cards[0].uuid)])
    text = (await exposition.text(metrics.registry)).decode()
    (line,) = (each for each in text.splitlines() if each.startswith("hami_node_gpu_mig_instance_info{"))
    assert f'device_uuid="{cards[0].uuid}",device_index="0",mig_uuid="{cards[1].uuid}",profile="1g.5gb"' in line
    assert 'placement_start="6"' in line
    assert line.endswith("} 1")


def test_resource_quotas_are_exported_by_hamis_names() -> None:
    """The smallest limit of each GPU resource of a namespace, and what its pods hold of it, in its units."""
    registry, term = CollectorRegistry(), Term()
    registry.register(
        StateCollector(term=lambda: term, recorder=Recorder(cast("Any", None), component="", instance=""))
    )
    for name, hard in (
        ("a", {"limits.nvidia.com/gpumem": "900"}),
        ("b", {"limits.nvidia.com/gpumem": "700", "pods": "1"}),
    ):
        term.state.limits.set_quota(
            msgspec.convert({"metadata": {"name": name, "namespace": "team"}, "spec": {"hard": hard}}, ResourceQuota)
        )
    term.state.set_pod(allocated("a", node="n1", memory=250, namespace="team"))
    labels = {"zone": "vGPU", "namespace": "team", "quota_name": "nvidia.com/gpumem"}
    assert registry.get_sample_value("hami_resource_quota_limit", labels) == 700
    assert registry.get_sample_value("hami_resource_quota_used", {**labels, "limit": "700"}) == 250


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_exports_cluster_metrics(leads: bool) -> None:  # noqa: FBT001
    """Every replica exports whether it leads."""
    registry = CollectorRegistry()
    recorder = Recorder(cast("Any", None), component="", instance="")
    registry.register(StateCollector(term=Term if leads else lambda: None, recorder=recorder))
    assert registry.get_sample_value("tranche_scheduler_leading") == float(leads)
    assert (registry.get_sample_value("tranche_scheduler_nodes") == 1) is leads
    claims = registry.get_sample_value("tranche_scheduler_gpu_claims", {"phase": "Pending"})
    assert claims == (1 if leads else None)
