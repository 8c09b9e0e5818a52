"""The quick start of ziwon's gpu-scheduler runs as its README shows it (quick_start.md), on a real node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allocation.names import ALLOCATED, ALLOCATION
from lab import helm_binary, kubectl, wait
from lab.client import client
from lab.layout import Layout
from tests.install import cuda_image
from tests.install.conftest import ROOT, SYSTEM, cards, gpu_pod, inventory, processes_ready
from tests.install.readme_blocks import Step, block, has_columns, steps, table
from tests.support.patience import KUBECTL_PATIENCE, PATIENCE_S

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.kubelet,
    pytest.mark.image,
    pytest.mark.helm,
    pytest.mark.timeout(900),
]
PAGE = Path(__file__).with_name("quick_start.md")
NAMESPACE = "gpu-scheduler"
INSTALL, *USE = steps(block(PAGE, "Quick Start"))
CARD = "GPU-7fb26e77-c956-a86e-2e85-a51d8abbb7c5"
EIGHT_CARDS = tuple(f"GPU-quick-start-{index}" for index in range(8))
Shell = Callable[[str], str]


@pytest.fixture(scope="module")
def shell(installable: Layout, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """`shell(command)`: its output; in the repository, with `kubectl`, `k` and `helm`, and a kubeconfig of its own."""
    folder = tmp_path_factory.mktemp("shell")
    for name in ("kubectl", "k"):
        (folder / name).symlink_to(installable.bin / "kubectl")
    (folder / "helm").symlink_to(helm_binary.provide())
    shutil.copy(installable.kubeconfig, folder / "kubeconfig")
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "PATH": f"{folder}:{os.environ['PATH']}"}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def before(installable: Layout) -> set[str]:
    """All objects of the cluster before the installation."""
    return inventory(installable)


@pytest.fixture(scope="module")
def prepared(installable: Layout, shell: Shell, before: set[str]) -> Iterator[Layout]:
    """The cluster before the first command of the quick start."""
    cuda_image.load(installable)
    yield installable
    kubectl.run(installable, "annotate", "nodes", "--all", "hami.io/node-nvidia-register-")


@pytest.fixture
def installed(prepared: Layout, shell: Shell) -> Iterator[Layout]:
    """The cluster after that command, which the first test runs, and the one after the removal, if any comes then.

    The pods and claims of a test are deleted before the next one begins.
    """
    api = client(prepared)
    if api.find("namespace", SYSTEM) is None:
        _install(prepared, shell)
    yield prepared
    if api.find("namespace", NAMESPACE) is not None:
        for kind in ("pods", "gpuclaims"):
            api.delete_all(kind, namespace=NAMESPACE, timeout_s=PATIENCE_S)


def _install(installable: Layout, shell: Shell) -> None:
    for step in steps(block(PAGE, "Before")):
        shell(step.command)
    shell(INSTALL.command)
    arguments = [
        f"--default-card-memory-mib={cuda_image.MEMORY_MIB}",
        f"--default-card-model={cuda_image.MODEL}",
        "--publish-seconds=2",
    ]
    patch = [{"op": "add", "path": "/spec/template/spec/containers/0/args", "value": arguments}]
    kubectl.run(
        installable, "-n", SYSTEM, "patch", "daemonset", "tranche-agent", "--type=json", f"--patch={json.dumps(patch)}"
    )
    processes_ready(installable)


def set_cards(layout: Layout, *uuids: str) -> None:
    """Let the agent report these cards for its node."""
    kubectl.run(
        layout, "-n", SYSTEM, "set", "env", "daemonset/tranche-agent", f"CUDA_VISIBLE_DEVICES={','.join(uuids)}"
    )
    wait.until(
        lambda: tuple(card["uuid"] for card in cards(layout)) == uuids, what="cards of the node", timeout_s=PATIENCE_S
    )


def finished(layout: Layout, name: str) -> dict[str, Any]:
    """Wait until a pod has succeeded, and return it."""
    until = "--for=jsonpath={.status.phase}=Succeeded"
    kubectl.run(layout, "-n", NAMESPACE, "wait", until, f"pod/{name}", KUBECTL_PATIENCE)
    pod: dict[str, Any] = client(layout).get("pod", name, namespace=NAMESPACE)
    return pod


def test_install_is_the_readmes() -> None:
    """The chart has that name and lives at that place."""
    assert Step("helm install gpu-scheduler charts/gpu-scheduler -n gpu-scheduler", ()) == INSTALL
    assert [step.command.split(" - ")[0] for step in USE] == [
        *["kubectl apply -f"] * 2,
        "kubectl get gclaim -n gpu-scheduler",
        "kubectl get gns -n gpu-scheduler -o wide",
        "k logs gpu-test -n gpu-scheduler",
    ]


def test_alias_is_scheduled_without_a_label(installed: Layout) -> None:
    """In the release's namespace, which has no label, a pod that names gpu-scheduler is Tranche's."""
    set_cards(installed, CARD)
    pod = gpu_pod("alias")
    pod["spec"]["schedulerName"] = NAMESPACE
    kubectl.run(installed, "-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(pod))
    kubectl.run(installed, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/alias", KUBECTL_PATIENCE)
    created = client(installed).get("pod", "alias", namespace=NAMESPACE)
    assert created["spec"]["schedulerName"] == "tranche"
    assert CARD in created["metadata"]["annotations"][ALLOCATION]


def test_quick_start_runs_verbatim(installed: Layout, shell: Shell) -> None:
    """The claim, the pod, both tables, and the log line for line: the container sees its card as index 0."""
    set_cards(installed, CARD)
    claim, pod, claims, nodes, log = USE
    shell(claim.command)
    shell(pod.command)
    created = finished(installed, "gpu-test")
    assert created["metadata"]["annotations"][ALLOCATED] == "0"

    printed = shell(claims.command)
    assert has_columns(printed, claims.output)
    (row,) = table(printed)
    # The cards of a pod that has ended are free.
    assert row.pop("ALLOCATED") in ("", f"{installed.node_name}:0")
    assert row.pop("AGE")
    assert row == {"NAME": "single-gpu", "REQ": "1", "POLICY": "contiguous", "TOPOLOGY": "Preferred"}
    printed = shell(nodes.command)
    assert has_columns(printed, nodes.output)
    (row,) = table(printed)
    assert (row["NAME"], row["NODE"], row["DEVICES"]) == (installed.node_name, installed.node_name, "1")
    assert tuple(shell(log.command).splitlines()) == log.output


def test_second_example_gets_four_contiguous_cards(installed: Layout, shell: Shell) -> None:
    """A pod of the claim sees four cards as 0 to 3; on a machine of eight they have consecutive indexes."""
    set_cards(installed, *EIGHT_CARDS)
    shell(f"kubectl apply -f - <<'EOF'\n{block(PAGE, 'Multi-GPU with Topology')}EOF")
    pod = yaml.safe_load(USE[1].command.split("\n", 1)[1].removesuffix("\nEOF"))
    pod["metadata"] |= {"name": "training", "annotations": {"gpu.scheduling/claim": "training-gpus"}}
    container = pod["spec"]["containers"][0]
    container["resources"]["limits"]["nvidia.com/gpu"] = "4"
    container["command"][-1] += "; sleep 3600"
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    kubectl.run(installed, "-n", NAMESPACE, "create", "-f", "-", stdin=json.dumps(pod))
    kubectl.run(installed, "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/training", KUBECTL_PATIENCE)
    created = client(installed).get("pod", "training", namespace=NAMESPACE)
    indexes = [int(index) for index in created["metadata"]["annotations"][ALLOCATED].split(",")]
    assert indexes == list(range(indexes[0], indexes[0] + 4))

    first, *seen = wait.until(
        lambda: lines if len(lines := shell("k logs training").splitlines()) > 4 else None,
        what="log of the pod",
        timeout_s=PATIENCE_S,
    )
    assert first == "CVD=0,1,2,3"
    assert [line.partition("UUID: ")[2].rstrip(")") for line in seen[:4]] == [EIGHT_CARDS[index] for index in indexes]

    def bound() -> dict[str, str] | None:
        rows = {row["NAME"]: row for row in table(shell("kubectl get gclaim -o wide"))}
        return rows["training-gpus"] if rows["training-gpus"]["PHASE"] == "Bound" else None

    row = wait.until(bound, what="phase Bound", timeout_s=PATIENCE_S)
    assert (row["REQ"], row["TOPOLOGY"]) == ("4", "Preferred")
    assert row["ALLOCATED"] == f"{installed.node_name}:{','.join(map(str, indexes))}"


def test_removal_leaves_nothing(installed: Layout, shell: Shell, before: set[str]) -> None:
    """Uninstalling the release removes the namespace of the processes as well; the user's namespace stays."""
    shell("helm uninstall gpu-scheduler -n gpu-scheduler --wait")
    shell(f"kubectl delete namespace gpu-scheduler {KUBECTL_PATIENCE}")
    wait.until(lambda: not inventory(installed) - before, what="removal of every object", timeout_s=PATIENCE_S)
