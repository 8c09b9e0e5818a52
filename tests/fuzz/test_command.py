"""`python -m fuzz`, as people and CI call it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_the_targets() -> None:
    """So does the error about an unknown target."""
    assert "openapi" in run("--help").stdout
    done = run("nothing")
    assert done.returncode == 2
    assert "unknown target nothing; the targets are allocation, " in done.stderr


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
def test_target_reports_its_inputs() -> None:
    """A target runs for a second in a process of its own."""
    done = run("quantity", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    name, verdict, inputs = done.stdout.split()[:3]
    assert (name, verdict) == ("quantity", "ok")
    assert int(inputs) > 100


def test_http_api_conforms_to_its_document() -> None:
    """Schemathesis sends requests to the scheduler's own listener for a few seconds."""
    done = run("openapi", "--seconds", "5")
    assert done.returncode == 0, done.stdout + done.stderr
