"""Benchmarks are not tests, but they must run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]


@pytest.mark.apiserver
def test_smoke_run_prints_rows_and_stores_raw_numbers(tmp_path: Path) -> None:
    """Every benchmark runs at a small size; its file begins with the machine and has a sample for every row."""
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=True)
    assert "| what | measured |" in done.stdout
    files = sorted(tmp_path.glob("*.jsonl"))
    assert files
    for file in files:
        first, *lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert first["machine"]["processors"] >= 1
        rows = [line["row"]["what"] for line in lines if "row" in line]
        assert rows
        assert rows == [line["sample"]["what"] for line in lines if "sample" in line]
        assert all(line["sample"]["seconds"] for line in lines if "sample" in line)


def test_unknown_benchmark_is_an_error() -> None:
    """The error lists the benchmarks."""
    command = [sys.executable, "-m", "benchmarks", "no-such"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "unknown benchmark no-such; the benchmarks are decision, steps, growth" in done.stderr
