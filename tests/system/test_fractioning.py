"""The delivery by kai-gpu-fractioning, from the annotations of a Binding to the devices and limits of a container.

The API server, the kubelet and containerd 2 are real; the component and NVIDIA's runtime are played, as their sources
describe them (support/nvidia_software.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from allocation.fractions import READY
from allocation.wire import environment
from lab import fleet
from lab.client import client
from tests.support.patience import KUBECTL_PATIENCE
from tests.system.conftest import Namespace, pod
from tests.system.support import nvidia_software
from tests.system.support.nri_plugin import NriPlugin
from tests.system.test_delivery import allocated, delivery, devices, with_second_container
from tests.system.test_slice import exec_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]


@contextmanager
def fractioning(layout: Layout) -> Iterator[Callable[[str, str], None]]:
    """The real node with kai-gpu-fractioning; yield how its operator says there whether it is ready, and why."""

    def write(condition: dict[str, str]) -> None:
        patch = {"status": {"conditions": [{"type": READY, **condition}]}}
        client(layout).patch("node", layout.node_name, patch, subresource="status", by="strategic")

    plugin = NriPlugin(
        layout.nri_socket, nvidia_software.operator_runtime, variables=nvidia_software.fractioning_plugin
    )
    uuids = [fleet.card(layout.node_name, index) for index in range(fleet.CARDS_PER_NODE)]
    nvidia_software.write_specs(layout.cdi_specs, uuids)
    with delivery(layout, {"mode": "nvfractions"}), plugin:
        try:
            yield lambda status, reason: write({"status": status, "reason": reason})
        finally:
            write({"$patch": "delete"})


def test_kai_gpu_fractioning_delivers_the_cards_and_limits_of_an_allocation(
    tranche_node: Layout, namespace: Namespace
) -> None:
    """Played by its sources: its plugin reads the annotations of the Binding, NVIDIA's runtime what that sets.

    A pod waits until the component says that it is ready on the node, and again once it says that it is not.
    """
    manifest = with_second_container(pod("both", node=tranche_node.node_name, gpu=2, gpumem=3000, gpucores=30))
    with fractioning(tranche_node) as say:
        namespace.create(manifest)
        assert "kai-gpu-fractioning does not say that it runs there" in namespace.unplaced("both")
        say("True", "AllDaemonsReady")
        namespace.kubectl("wait", "--for=condition=Ready", KUBECTL_PATIENCE, "pod/both")
        bound = namespace.pod("both")
        assert len(allocated(bound)) == 2
        assert devices(namespace, "both") == allocated(bound)
        assert devices(namespace, "both", "other") == set()
        seen = exec_environment(namespace, "both")
        expected = environment.fraction_variables(bound["metadata"]["annotations"], "main")
        assert {name: seen.get(name) for name in expected} == expected
        limits = ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
        assert [expected[name] for name in limits] == ["3000", "3000", "30"]
        say("False", "FractiondNotReady")
        namespace.create(pod("late", node=tranche_node.node_name, gpu=1, gpumem=3000))
        reason = namespace.unplaced("late")
        assert "DeliveryUnavailable" in reason
        assert f"condition {READY} is False (FractiondNotReady)" in reason
        assert f"{READY} is False (FractiondNotReady)" in explained(tranche_node, namespace, "late")


def explained(layout: Layout, namespace: Namespace, name: str) -> str:
    """Return what `kubectl gpu explain` prints about a pod."""
    command = [sys.executable, "-m", "cli", "explain", name, "-n", namespace.name]
    variables = {**os.environ, "KUBECONFIG": str(layout.kubeconfig)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables).stdout
