"""On a machine with a GPU, the agent measures what a container really uses: `make gpu-test`.

A process in a control group with the name of a container's is the container. The reading runs in a process
of its own, which never loaded the stub.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent import processes
from tests.agent.support.containers import ID, UID
from tests.cuda import real
from tests.cuda.programs import Container, build

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="this machine has no GPU"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the probe needs a C compiler"),
]

MIB = 1 << 20
USED_MIB = 2048
MEASURE = """
import sys
from prometheus_client import CollectorRegistry, generate_latest
from agent.measurement_metrics import MeasurementCollector
from agent.measuring import Measurer
from agent.nvml.source import NvmlSource
from agent.settings import AgentSettings
settings = AgentSettings()
with NvmlSource(node="n1", settings=settings, wake=lambda: None) as source:
    source.read()
    measurer = Measurer(source, node="n1", settings=settings)
    measurer.measure()
    registry = CollectorRegistry()
    registry.register(MeasurementCollector(lambda: measurer.last))
    sys.stdout.buffer.write(generate_latest(registry))
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group as the kubelet and containerd name them."""
    real.require_cgroups()
    if not processes.sees_host(Path("/proc")):
        pytest.skip("only the host's PID namespace shows whose processes use a card: run the tests outside a container")
    pod = real.CGROUPS / "kubepods-tranche-gpu-test" / f"pod{UID}"
    made = pod / ID
    made.mkdir(parents=True)
    yield made
    for each in (made, pod, pod.parent):
        each.rmdir()


def test_the_memory_of_a_container_is_exported(group: Path, tmp_path: Path) -> None:
    """By the pod's UID, of the card that it uses: at least what its program has allocated, and not the whole card."""
    (card, total), *_ = real.cards().items()
    probe = real.in_cgroup(group, [str(build(tmp_path).probe)])
    container = Container(probe, {"CUDA_VISIBLE_DEVICES": card}, step_mib=64, most_mib=USED_MIB)
    try:
        assert container.run().mib == [USED_MIB]
        exported = real.python(MEASURE).decode()
    finally:
        container.end()
    labels = f'container_id="{ID}",device_uuid="{card}",node="n1",uid="{UID}"'
    series = re.escape(f"tranche_agent_container_memory_used_bytes{{{labels}}} ")
    found = re.search(rf"^{series}(\S+)$", exported, re.MULTILINE)
    assert found, exported
    assert USED_MIB * MIB <= float(found[1]) < total * MIB
