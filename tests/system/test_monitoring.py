"""The dashboard and the alerts select metrics that a running system exports."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from allocation.names import QUEUE as QUEUE_LABEL
from lab import wait
from lab.client import client
from lab.layout import Port
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support.gpuqueues import delete_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

MANIFESTS = Path(__file__).parents[2] / "manifests"
DASHBOARD = json.loads((MANIFESTS / "dashboards" / "tranche.json").read_text())
ALERTS = yaml.safe_load((MANIFESTS / "alerts" / "tranche.rules.yaml").read_text())
PROCESSES = {"scheduler": Port.SCHEDULER, "webhook": Port.WEBHOOK_METRICS, "agent": Port.AGENT_METRICS}
MATCHES = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "MatchOp.NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}
WITH_KUBE_SCHEDULER = frozenset({"tranche_kube_scheduler_up"})
"""What is exported only beside a kube-scheduler of ours; test_hand_over.py reads it."""
QUEUE = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQueue", "metadata": {"name": "team"}, "spec": {}}
QUOTA = {
    "apiVersion": "gpu.scheduling/v1",
    "kind": "GpuQuota",
    "metadata": {"name": "team"},
    "spec": {"total": {"maxPods": 5}},
}

Series = tuple[str, dict[str, str]]


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title and the expression of each panel's queries."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield panel["title"], expression.replace("$cluster", ".*").replace("$job", ".*")


def alerts() -> Iterator[dict[str, Any]]:
    """Yield the alert rules."""
    for group in ALERTS["groups"]:
        yield from group["rules"]


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    """Return the selectors in an expression."""
    vectors: list[promql_parser.VectorSelector] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            vectors.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            vectors.append(node.vector_selector)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return vectors


def selects(selector: promql_parser.VectorSelector, series: list[Series]) -> bool:
    """Return whether a selector matches any of the series."""
    wanted = selector.matchers.matchers
    return any(
        name == selector.name and all(MATCHES[str(each.op)](labels.get(each.name, ""), each.value) for each in wanted)
        for name, labels in series
    )


def scrape(layout: Layout) -> list[Series]:
    """Return every series of the running processes, with the labels that Prometheus adds."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    series: list[Series] = []
    for process, port in PROCESSES.items():
        series.append(("up", {"job": f"tranche-{process}"}))
        with opener.open(f"http://127.0.0.1:{layout.port(port)}/metrics", timeout=10) as response:
            text = response.read().decode()
        names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(names) == len(set(names)), "Prometheus rejects a metric family that occurs twice"
        for family in text_string_to_metric_families(text):
            series += [(each.name, {**each.labels, "job": f"tranche-{process}"}) for each in family.samples]
    return series


@pytest.fixture(scope="module")
def series(tranche: Layout, make_namespace: Any) -> list[Series]:
    """All series after a small workload: two pods, of which one waits, a GpuQueue, a missing one, and a GpuQuota."""
    client(tranche).apply(QUEUE)
    made: Namespace = make_namespace()
    made.create(QUOTA)
    made.create(pod("fits", gpu=1, gpumem=1000), pod("waits", gpu=1, gpumem=10_000_000))
    made.placed(1)
    made.unplaced("waits")
    wait.until(
        lambda: client(tranche).get("gpuqueue", "team").get("status"),
        what="the status of the GpuQueue",
        timeout_s=PATIENCE_S,
    )
    # Its pods have been scheduled; new ones would wait for the queue.
    client(tranche).patch("namespace", made.name, {"metadata": {"labels": {QUEUE_LABEL: "missing"}}})

    def complete() -> list[Series] | None:
        scraped = scrape(tranche)
        return scraped if any(name == "tranche_missing_queue_namespaces" for name, _ in scraped) else None

    scraped = wait.until(complete, what="the missing GpuQueue", timeout_s=PATIENCE_S)
    delete_queue(tranche, "team")
    made.empty()
    return scraped


@pytest.mark.parametrize(("title", "expression"), list(queries()))
def test_every_dashboard_query_matches_series(series: list[Series], title: str, expression: str) -> None:
    """Each metric exists with each of its labels."""
    vectors = selectors(expression)
    assert vectors
    for selector in vectors:
        assert selects(selector, series), f"{title}: no series matches {selector.prettify()}"


@pytest.mark.parametrize("alert", list(alerts()), ids=lambda alert: alert["alert"])
def test_every_alert_matches_series(series: list[Series], alert: dict[str, Any]) -> None:
    """An alert without series would never fire; the labels in its text are labels of its result."""
    expression = alert["expr"]
    for selector in selectors(expression):
        assert selector.name in WITH_KUBE_SCHEDULER or selects(selector, series), (
            f"no series matches {selector.prettify()}"
        )
    for label in re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]):
        assert re.search(rf"by \([^)]*\b{label}\b", expression), label


def test_labels_in_aggregations_exist(series: list[Series]) -> None:
    """A sum by a label that no series has would be a single sum."""
    exported = {name for _, labels in series for name in labels} | {"instance", "cluster"}
    for expression in (*(each["expr"] for each in alerts()), *(query for _, query in queries())):
        for names in re.findall(r"\bby \(([^)]*)\)", expression):
            assert {name.strip() for name in names.split(",")} <= exported, expression


def test_each_log_has_one_line_per_decision(tranche: Layout, namespace: Namespace) -> None:
    """The pod's UID finds its outcome, its name finds its review, and every line has the same format."""
    namespace.create(pod("logged", gpu=1, gpumem=1000))
    (placed,) = namespace.placed(1)
    uid = placed["metadata"]["uid"]

    def lines(process: str) -> list[str]:
        return Daemon(tranche, process).log.read_text().splitlines()

    def decided() -> list[str]:
        return [line for line in lines("scheduler") if f"uid={uid}" in line]

    (line,) = wait.until(decided, what="the line of the decision", timeout_s=PATIENCE_S)
    assert "level=info" in line
    assert f"pod={namespace.name}/logged" in line
    assert "outcome=bound" in line
    (review,) = [line for line in lines("webhook") if f"pod={namespace.name}/logged" in line]
    assert re.search(r" review=[0-9a-f-]{36} .* outcome=mutated", review)
    for process in PROCESSES:
        assert all(re.match(r"time=\S+Z level=\w+ logger=\S+ msg=", each) for each in lines(process)), process
