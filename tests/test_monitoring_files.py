"""The dashboard and the alerts work where one Prometheus has several clusters, and say what they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

MANIFESTS = Path(__file__).parents[1] / "manifests"
DASHBOARD = json.loads((MANIFESTS / "dashboards" / "tranche.json").read_text(encoding="utf-8"))
GROUPS = yaml.safe_load((MANIFESTS / "alerts" / "tranche.rules.yaml").read_text(encoding="utf-8"))["groups"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = [rule for group in GROUPS for rule in group["rules"]]


def _named(one: dict[str, Any]) -> str:
    return str(one.get("title") or one["alert"])


@pytest.mark.parametrize("panel", PANELS, ids=_named)
def test_each_panel_is_described_and_selects_cluster_and_job(panel: dict[str, Any]) -> None:
    """By the dashboard's variables, for each metric of each query."""
    assert panel["description"].endswith(".")
    for target in panel["targets"]:
        metrics = re.findall(r"\b(?:tranche|hami|process)_\w+(\{[^}]*\})?", target["expr"])
        assert metrics
        assert all(each.startswith('{cluster=~"$cluster",job=~"$job"') for each in metrics), target["expr"]


def test_variables_of_the_dashboard_come_from_the_processes() -> None:
    """Clusters and jobs are those that have Tranche's processes; both work without a label `cluster`."""
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "cluster", "job"]
    assert variables["cluster"]["query"]["query"] == "label_values(tranche_build_info, cluster)"
    assert variables["job"]["query"]["query"] == 'label_values(tranche_build_info{cluster=~"$cluster"}, job)'


@pytest.mark.parametrize("rule", RULES, ids=_named)
def test_each_alert_keeps_the_cluster(rule: dict[str, Any]) -> None:
    """No alert adds up clusters: each aggregation is by cluster."""
    aggregations: list[promql_parser.AggregateExpr] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.AggregateExpr):
            aggregations.append(node)
        return True

    promql_parser.walk(promql_parser.parse(rule["expr"]), visit)
    assert aggregations
    assert all("cluster" in each.modifier.labels for each in aggregations), rule["expr"]


@pytest.mark.parametrize("rule", RULES, ids=_named)
def test_summary_of_an_alert_reads_well_for_one(rule: dict[str, Any]) -> None:
    """A number comes after what it counts: `1 nodes` would be wrong."""
    assert not re.search(r"\{\{ \$value \}\} \w+s\b", rule["annotations"]["summary"])
