"""`python -m lab install`: a lab in which Helm installs Tranche, so that its processes are pods as in any cluster."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from allocation.names import SYSTEM_NAMESPACE
from lab import cluster, control_plane, helm_binary, kubectl, kubernetes_service, manifests, real_node
from lab.client import client
from lab.errors import LabError
from lab.files import link
from lab.image import build, load
from lab.processes import Daemon
from lab.steps import step

if TYPE_CHECKING:
    from lab.layout import Layout

CHART: Final = Path(__file__).resolve().parents[1] / "charts" / "tranche"
RELEASE: Final = "tranche"
CARDS: Final = ("GPU-lab-0", "GPU-lab-1")
CARD_MIB: Final = 40960
_TIMEOUT_S: Final = 330  # Helm itself waits for five minutes
_SIMULATED: Final = [{"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(CARDS)}]
VALUES: Final = (
    "--set=image.registry=",  # the node has the image
    f"--set-json=agent.extraEnv={json.dumps(_SIMULATED)}",
    f"--set=config.agent.default_card.memory_mib={CARD_MIB}",
    "--set=config.agent.publish_seconds=2",
)
"""The values of an installation on a node without cards: its agent reports two that do not exist."""


def up(layout: Layout) -> None:
    """Start a cluster with one real node, and install the chart with the image of this working tree.

    Raises:
        LabError: the folder has a lab whose processes are not pods, the machine cannot run a node or build the image,
            or a step failed.
    """
    if Daemon(layout, "scheduler").is_running:
        why = "Tranche runs there as processes, not as pods"
        raise LabError(f"lab in {layout.root}", why=why, remedy="run `make down`, or set LAB_ROOT to another folder")
    if missing := real_node.unsupported():
        raise LabError("real node", why="; ".join(missing), remedy="`make up` needs none")
    start(layout)
    install(layout)


def start(layout: Layout, built: build.Built | None = None) -> None:
    """Start a cluster with one real node on which the chart can be installed, with the image of this working tree.

    Args:
        layout: the lab.
        built: the image; without it, it is built.

    Raises:
        LabError: a step failed.
    """
    cluster.start(layout, with_real_node=True)
    with step("image") as outcome, tempfile.TemporaryDirectory() as folder:
        image = built or build.build(Path(folder) / "image.tar")
        load.load(layout, image.archive)
        outcome.append(f"{build.name()}, {image.digest}")
    _prepare(layout)


def install(layout: Layout, *values: str) -> None:
    """Install the chart with `values` as well, or upgrade it, and run its tests.

    Raises:
        LabError: a process did not become ready, or a test of the chart failed.
    """
    with step("helm install") as outcome:
        helm(layout, "upgrade", "--install", RELEASE, str(CHART), "--create-namespace", "--wait", *VALUES, *values)
        outcome.append(f"release {RELEASE} in {SYSTEM_NAMESPACE}; every process is ready")
    with step("helm test") as outcome:
        helm(layout, "test", RELEASE)
        outcome.append("passed")


def _prepare(layout: Layout) -> None:
    """Make the real node one on which the chart can be installed: API server, RuntimeClass and label."""
    if not Daemon(layout, kubernetes_service.NAME).is_running:
        # Without kube-proxy, the API server connects to the pods behind a Service itself.
        control_plane.restart_apiserver(layout, flags={"--enable-aggregator-routing": "true"})
    kubernetes_service.up(layout)
    kubectl.run(layout, "apply", "-f", str(manifests.ROOT / "lab" / "runtimeclass.yaml"))
    client(layout).patch("node", layout.node_name, {"metadata": {"labels": {"gpu": "on"}}})


def helm(layout: Layout, *arguments: str) -> str:
    """Return the output of Helm in Tranche's namespace; the lab's folder of programs gets a link to it.

    Raises:
        LabError: it failed.
    """
    program = helm_binary.provide()
    link(layout.bin / "helm", program)
    command = [str(program), f"--kubeconfig={layout.kubeconfig}", f"--namespace={SYSTEM_NAMESPACE}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        why = (done.stdout + done.stderr).strip()
        raise LabError(f"helm {arguments[0]}", why=why, remedy=f"kubectl -n {SYSTEM_NAMESPACE} get pods")
    return done.stdout
