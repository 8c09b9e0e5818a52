"""Failures at the start of the process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def _agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("NODE_NAME", "CUDA_VISIBLE_DEVICES")}
    return subprocess.run(
        [sys.executable, "-m", "agent", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def test_missing_node_name_ends_the_start_with_a_remedy() -> None:
    """An agent without a node name does not start; the message names the flags."""
    done = _agent()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: no node is named; set --node-name or $NODE_NAME, or name a fleet file with --fleet-file"
    )


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has NVML")
def test_missing_nvml_library_is_logged(tmp_path: Path) -> None:
    """The agent serves a node without an NVIDIA driver with no cards, and logs what is missing."""
    done = _agent("--node-name", "n1", "--kubeconfig", str(tmp_path / "absent"))
    assert "NVML of node n1: not available: nvmlInit: NVML Shared Library Not Found" in done.stderr


def test_invalid_fleet_file_ends_the_start(tmp_path: Path) -> None:
    """The error goes to standard error before the agent sends a request to the API server."""
    path = tmp_path / "fleet.yaml"
    path.write_text("n1: {count: 8}")
    done = _agent("--fleet-file", str(path), "--kubeconfig", str(tmp_path / "absent"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: fleet file {path}: n1.memoryMiB holds ''")


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--publish-seconds", "0"),
        ("--heartbeat-lease-seconds", "-1"),
        ("--metrics-port", "65536"),
        ("--quiet-seconds", "0"),
        ("--slots", "0"),
        ("--ignored-xids", "13,x"),
        ("--default-card-memory-mib", "-1"),
    ],
)
def test_setting_out_of_bounds_is_a_usage_error(flag: str, value: str) -> None:
    """The message names the flag."""
    done = _agent(flag, value)
    assert done.returncode == 2
    assert flag in done.stderr
