"""Each alert fires after its `for`, not before, and only in the cluster with the problem: evaluated by Prometheus."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import promtool_binary
from tests.alerts.case import Case, Series
from tests.alerts.process_cases import NODES, OTHERS
from tests.alerts.scheduler_cases import FAIRNESS, SCHEDULER

pytestmark = pytest.mark.promtool

FILE = Path(__file__).parents[2] / "manifests" / "alerts" / "tranche.rules.yaml"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
CASES = (*SCHEDULER, *FAIRNESS, *NODES, *OTHERS)
Evaluate = Callable[..., None]


@pytest.fixture(scope="session")
def promtool() -> Path:
    """The program."""
    return promtool_binary.provide()


@pytest.fixture
def evaluate(promtool: Path, tmp_path: Path) -> Evaluate:
    """`evaluate(series, expected)`: fails unless exactly the `expected` alerts, by name and minute, fire."""

    def check(series: Series, expected: Mapping[tuple[str, int], list[dict[str, Any]]]) -> None:
        tests = {
            "rule_files": [str(FILE)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "alert_rule_test": [
                        {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": alerts}
                        for (name, minute), alerts in expected.items()
                    ],
                }
            ],
        }
        path = tmp_path / "tests.yaml"
        path.write_text(yaml.safe_dump(tests), encoding="utf-8")
        done = subprocess.run(
            [promtool, "test", "rules", path], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return check


def in_cluster(series: Series, cluster: str) -> Series:
    """Return the same series with the label of a cluster."""
    return {
        f'{metric}{{cluster="{cluster}"{"," if labels else ""}{labels}}}': values
        for name, values in series.items()
        for metric, labels in [re.fullmatch(r"(\w+)(?:\{(.*)\})?", name).groups("")]  # type: ignore[union-attr]
    }


def fired(alert: str, summary: str, **labels: str) -> dict[str, Any]:
    """Return an alert as promtool expects it."""
    severity = RULES[alert]["labels"]["severity"]
    return {"exp_labels": {"severity": severity, **labels}, "exp_annotations": {"summary": summary}}


def test_each_alert_has_a_case() -> None:
    """In which it fires, and one in which it does not."""
    assert {case.alert for case in CASES} == RULES.keys()
    assert all(case.quiet for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_alert_fires_after_its_time_and_only_where_it_has_to(case: Case, evaluate: Evaluate) -> None:
    """One minute earlier no cluster has the alert; then cluster `a` has it, with its text, and the others do not."""
    series = in_cluster(case.fires, "a")
    for number, quiet in enumerate(case.quiet):
        series |= in_cluster(quiet, f"b{number}")
    expected = {(case.alert, case.minute): [fired(case.alert, case.summary, cluster="a", **case.labels)]}
    if case.minute:
        expected[case.alert, case.minute - 1] = []
    evaluate(series, expected)


@pytest.mark.parametrize("alert", ["TrancheNoLeader", "TrancheWebhookDown"])
def test_alert_fires_where_nothing_is_scraped(alert: str, evaluate: Evaluate) -> None:
    """Without any series there is no cluster to name."""
    summary = RULES[alert]["annotations"]["summary"]
    evaluate({"up": "0x10"}, {(alert, 1): [], (alert, 2): [fired(alert, summary)]})
