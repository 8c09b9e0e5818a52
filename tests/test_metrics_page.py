"""docs/metrics.md, the registries, the dashboard and the alerts speak of the same metrics."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from prometheus_client import CollectorRegistry

from agent.metrics import Metrics as AgentMetrics
from cluster import exposition, process_metrics
from cluster.events import Recorder
from cluster.traffic_metrics import TrafficMetrics
from scheduler.card_metrics import FAMILIES, LABELS
from scheduler.metrics import Metrics as SchedulerMetrics
from scheduler.term_metrics import Standing
from tests.scheduler.builders import pod, state
from webhook.metrics import Metrics as WebhookMetrics

PAGE = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \|(.*?)\| (.+?) \|$", re.MULTILINE)
FORBIDDEN = {"pod", "uid", "pod_uid", "name", "user", "container"}


class Shown(NamedTuple):
    """A metric as Prometheus sees it."""

    name: str
    type: str
    labels: tuple[str, ...]


class Term:
    """A term under way, without locks."""

    def __init__(self) -> None:
        self.state = state("n1")
        self.locks = self
        self.queued = 0
        self.ages = [1.0]


class Cache:
    """A cache of nothing."""

    plural = "pods"
    silent_seconds = 1.0

    def __len__(self) -> int:
        """Count nothing."""
        return 0


def families(registry: CollectorRegistry) -> list[Shown]:
    """Answer what a registry shows."""
    found = []
    for collector in cast("dict[Any, Any]", registry._collector_to_names):
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
            counted = family.type == "counter"
            found.append(Shown(family.name + "_total" * counted, family.type, tuple(labels)))
    return found


def shown() -> set[Shown]:
    """Answer what all processes show but for what every process of any kind does."""
    scheduler = SchedulerMetrics(ledger=lambda: None)
    scheduler.registry.register(Standing(term=Term, recorder=Recorder(cast("Any", None), component="", instance="")))
    process_metrics.register(scheduler.registry)
    traffic = TrafficMetrics(scheduler.registry)
    with traffic.following(Cache()):
        found = [
            each
            for registry in (scheduler.registry, WebhookMetrics().registry, AgentMetrics().registry)
            for each in families(registry)
        ]
    cards = [Shown(name, "gauge", LABELS) for name in FAMILIES]
    return {each for each in (*found, *cards) if not each.name.startswith("process_")}


def documented() -> set[Shown]:
    """Answer what the page says."""
    return {Shown(name, kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(PAGE)}


def test_the_page_says_what_is_shown() -> None:
    """Name, type and labels of every metric, and of none that is not there."""
    assert documented() == shown()


def test_no_label_grows_with_pods_or_people() -> None:
    """Only cards, nodes and kinds: who asks for many pods makes no series."""
    assert not [each for each in shown() if FORBIDDEN & set(each.labels)]


async def test_cards_are_shown_as_the_ledger_has_them() -> None:
    """HAMi's names; what a model is called may hold anything."""
    made = state("n1")
    made.set_pod(pod("a", memory=1))
    metrics = SchedulerMetrics(ledger=lambda: made.ledger)
    made.ledger.used[0, 0, 1] = 250
    text = (await exposition.text(metrics.registry)).decode()
    labels = 'zone="vGPU",node="n1",device_uuid="GPU-n1-1",device_index="1",device_type=""'
    assert f"hami_node_gpu_memory_allocated_ratio{{{labels}}} 25.0\n" in text
    assert f"hami_gpu_memory_limit_bytes{{{labels}}} {1000 * 2**20}\n" in text
    assert 'tranche_scheduler_cards{state="usable"} 2.0\n' in text
    assert exposition.labels({"model": 'a"\\\nb'}) == r'{model="a\"\\\nb"}'


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_that_stands_by_says_so(leads: bool) -> None:  # noqa: FBT001
    """Every replica answers whether it leads; who does not claims to know nothing of the cluster."""
    registry = CollectorRegistry()
    recorder = Recorder(cast("Any", None), component="", instance="")
    registry.register(Standing(term=Term if leads else lambda: None, recorder=recorder))
    assert registry.get_sample_value("tranche_scheduler_leading") == float(leads)
    assert (registry.get_sample_value("tranche_scheduler_nodes") == 1) is leads
