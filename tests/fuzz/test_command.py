"""`python -m fuzz` as people and CI call it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Call it."""
    return subprocess.run(
        [sys.executable, "-m", "fuzz", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_the_targets() -> None:
    """And so does the refusal of one that there is not."""
    assert "openapi" in run("--help").stdout
    refused = run("nothing")
    assert refused.returncode == 2
    assert "there is no target nothing; there are allocation, " in refused.stderr


@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
def test_a_short_hunt() -> None:
    """A second of a target, in a process of its own; what it did is told."""
    done = run("quantity", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    name, told, inputs = done.stdout.split()[:3]
    assert (name, told) == ("quantity", "ok")
    assert int(inputs) > 100


def test_the_http_api_by_its_document() -> None:
    """The scheduler's own listener, asked by schemathesis for a few seconds."""
    done = run("openapi", "--seconds", "5")
    assert done.returncode == 0, done.stdout + done.stderr
