"""The queries of `kubectl gpu report`, evaluated by Prometheus."""

import subprocess
from pathlib import Path

import pytest
import yaml

from cli.report.report import HOURS, KNOWN
from lab import promtool_binary

pytestmark = pytest.mark.promtool
TEAM = 'namespace="team",queue=""'
METRIC = "tranche_allocated_card_seconds_total"


def test_hours_are_counted_across_leaders(tmp_path: Path) -> None:
    """A new leader counts from 0, and a replica that is restarted, too.

    Four hours were held; the first value that is read of each leader does not count, so a minute of each is missing.
    """
    content = {
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    # Two cards: 120 card-seconds a minute, at first by replica a, which is restarted once, then by b.
                    {"series": f'{METRIC}{{{TEAM},instance="a"}}', "values": "0+120x30 0+120x29 stale"},
                    {"series": f'{METRIC}{{{TEAM},instance="b"}}', "values": "_x61 0+120x60"},
                    {"series": 'tranche_scheduler_leading{instance="a"}', "values": "1x60 0x60"},
                    {"series": 'tranche_scheduler_leading{instance="b"}', "values": "0x60 0x30 1x30"},
                ],
                "promql_expr_test": [
                    {
                        "expr": f"round({HOURS.format(selector='', since='2h')}, 0.1)",
                        "eval_time": "121m",
                        "exp_samples": [{"labels": '{namespace="team"}', "value": 3.9}],
                    },
                    {
                        "expr": f"round({KNOWN.format(selector='', since='2h')}, 0.01)",
                        "eval_time": "120m",
                        "exp_samples": [{"labels": "{}", "value": 0.74}],
                    },
                ],
            }
        ],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    done = subprocess.run(
        [promtool_binary.provide(), "test", "rules", path], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
