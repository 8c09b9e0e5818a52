"""The driver that measures other schedulers by their names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.client import client

if TYPE_CHECKING:
    from lab.layout import Layout

ROOT = Path(__file__).parents[2]


def _peer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.peer", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.apiserver
def test_pods_of_a_stock_scheduler_are_measured_and_deleted(control_plane: Layout) -> None:
    """Each pod gets a node from the scheduler that was named; afterwards none is left."""
    api = client(control_plane)
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "of-a-peer"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "example.com/card": "8"}},
        }
    )
    api.patch("node", "of-a-peer", {"spec": {"taints": None}})
    try:
        done = _peer(
            f"--kubeconfig={control_plane.kubeconfig}",
            "--scheduler=default-scheduler",
            "--limit=example.com/card=1",
            "--annotation=example.com/note=text",
            "--pods=5",
            "--a-second=50",
        )
    finally:
        api.delete("node", "of-a-peer")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"default-scheduler: \d+ pods/s, from creation to node p50 .* ms, p99 .* ms\n", done.stdout)
    assert not [pod for pod in api.list("pod", namespace="default") if pod["metadata"]["name"].startswith("peer-")]


@pytest.mark.parametrize(
    ("argument", "message"),
    [("--limit=nvidia.com/gpu", "'nvidia.com/gpu' is not KEY=VALUE"), ("--pods=1", "--pods: a rate needs at least 2")],
)
def test_what_cannot_be_measured_is_an_error(argument: str, message: str) -> None:
    """The error names the option and its value."""
    done = _peer("--scheduler=mine", argument)
    assert done.returncode == 2
    assert message in done.stderr
