"""On a machine with a GPU, the agent's inventory equals that of `nvidia-smi`."""

import json
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no GPU")

READ = """
import json
from agent.nvml.source import NvmlSource
from agent.settings import AgentSettings
with NvmlSource(node="n1", settings=AgentSettings(), wake=lambda: None) as source:
    report = source.read()["n1"]
cards = report.inventory.cards
print(json.dumps([[str(c.index), c.uuid, c.model, str(c.memory_mib), report.driver_version] for c in cards]))
"""


def test_inventory_equals_nvidia_smi() -> None:
    """Compares index, UUID, name, MiB and driver of every card, in a process that never loaded the stub."""
    query = "--query-gpu=index,uuid,name,memory.total,driver_version"
    expected = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
    ).stdout
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True).stdout
    assert json.loads(read) == [line.split(", ") for line in expected.splitlines()]
