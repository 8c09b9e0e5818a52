"""The lab as a person uses it: every command of the walkthrough, on a cluster that `up` has started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import binaries, cluster, demos, evidence, kubectl, processes
from lab.client import client
from lab.fleet import SIMULATED_NODES, nodes
from lab.layout import DEFAULT_BASE_PORT, Port, remembered
from tests.lab.support.listening import listen
from tests.support.patience import KUBECTL_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def lab(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the lab."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments, "--root", str(layout.root)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LAB_BASE_PORT": str(layout.base_port)},
    )


@pytest.fixture(scope="module")
def demonstrated(tranche: Layout) -> Iterator[Layout]:
    """A lab; each demo replaces what it left before, and all are deleted at the end."""
    yield tranche
    list(demos.clean(tranche))


@pytest.fixture
def cleaned(tranche: Layout) -> Iterator[Layout]:
    """A lab without demos; those of the test are deleted afterwards."""
    list(demos.clean(tranche))
    yield tranche
    list(demos.clean(tranche))


def test_second_up_is_idempotent(tranche: Layout) -> None:
    """The second `up` starts and restarts nothing."""
    before = {path.name: path.read_text() for path in tranche.run.glob("*.json")}
    again = lab(tranche, "up", *([] if tranche.node_name in nodes(tranche) else ["--no-real-node"]))
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_text() for path in tranche.run.glob("*.json")} == before


def test_install_leaves_a_lab_alone_whose_processes_are_not_pods(tranche: Layout) -> None:
    """Helm's objects and those of `up` have the same names; the error says what to do, and nothing is stopped."""
    before = {path.name: path.read_text() for path in tranche.run.glob("*.json")}
    done = lab(tranche, "install")
    assert done.returncode == 1
    assert "Tranche runs there as processes, not as pods" in done.stderr
    assert "make down" in done.stderr
    assert {path.name: path.read_text() for path in tranche.run.glob("*.json")} == before


def test_verify_counts_the_cards_of_every_node(tranche: Layout) -> None:
    """Each node has eight, in the GpuNodeStatus and in the register annotation."""
    done = lab(tranche, "verify")
    assert done.returncode == 0, done.stderr
    for node in nodes(tranche):
        assert f"{node}: 8 GPUs registered" in done.stdout


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        ("demo-fractional", ",NVIDIA,3000,30:;"),
        ("demo-pending", "8/8 CardInsufficientMemory"),
        ("demo-placement", "3 nodes fit("),
        ("demo-claim", "CUDA_VISIBLE_DEVICES=0,1"),
        ("demo-static", "is not trusted to set it"),
        ("demo-environment", "CUDA_VISIBLE_DEVICES=GPU-"),
        ("top", "/81920"),
    ],
)
def test_each_demo_shows_its_result(demonstrated: Layout, command: str, shows: str) -> None:
    """A demo fails unless the cluster shows the expected result, whatever other demos left."""
    done = lab(demonstrated, command)
    assert done.returncode == 0, done.stderr
    assert shows in done.stdout.replace("4 nodes fit(", "3 nodes fit(")


def test_evidence_is_nine_files_that_begin_with_their_command(cleaned: Layout) -> None:
    """A command that fails is recorded, too, and does not stop the others."""
    (line,) = evidence.record(cleaned)
    empty = Path(line.split(" in ")[1])
    assert len(list(empty.iterdir())) == 9
    assert "NotFound" in (empty / "fractional.txt").read_text()
    assert "failed with exit code" in (empty / "fractional.txt").read_text()
    for command in ("demo-fractional", "demo-pending", "demo-placement"):
        assert lab(cleaned, command).returncode == 0
    done = lab(cleaned, "evidence")
    assert done.returncode == 0, done.stderr
    (full,) = set(cleaned.evidence.iterdir()) - {empty}
    files = {path.stem: path.read_text() for path in full.iterdir()}
    assert files.keys() == evidence.COMMANDS.keys()
    for name, text in files.items():
        assert text.startswith(f"$ {evidence.COMMANDS[name]}\n")
    assert "CardInsufficientMemory" in files["pending-reasons"]
    assert "find fit node" in files["scheduler-events"]
    assert "8 GPUs registered" in files["node-resources"]
    assert "Pending" in files["overrequest"]
    assert files["placement"].count("placement-") >= 3


def test_clean_leaves_no_demo_pod(tranche: Layout) -> None:
    """`clean` also succeeds without a demo pod."""
    assert lab(tranche, "demo-fractional").returncode == 0
    for _ in range(2):
        assert lab(tranche, "clean").returncode == 0
        assert not client(tranche).list("pods", labels="demo")


def test_demo_without_a_lab_names_the_remedy(tmp_path: Path) -> None:
    """The error is one line, and the exit code is 1."""
    done = subprocess.run(
        [sys.executable, "-m", "lab", "demo-fractional", "--root", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "make up" in done.stderr


# ---- the first five minutes: a lab of its own, started as a new user starts it ---------------------------------------


def run(root: Path, *arguments: str, base_port: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the lab in `root`, with LAB_BASE_PORT set to `base_port`."""
    return subprocess.run(
        [sys.executable, "-m", "lab", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LAB_ROOT": str(root), "LAB_BASE_PORT": base_port, **environment},
    )


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Layout, str]]:
    """A lab that was started while another process listened on a default port, and what `up` printed."""
    root = tmp_path_factory.mktemp("moved")
    listener = listen(DEFAULT_BASE_PORT + Port.WEBHOOK)  # None if another lab has the port: it is taken all the same
    try:
        done = run(root, "up", "--no-real-node")
        assert done.returncode == 0, done.stderr
        layout = remembered(root)
        assert layout is not None
        yield layout, done.stdout
        assert run(root, "down", base_port="8").returncode == 0
        assert not processes.strays(layout)
        assert {entry.name for entry in root.iterdir()} == {"lock", "logs"}
    finally:
        if listener is not None:
            listener.close()
        if (left := remembered(root)) is not None:
            cluster.down(left)


def test_taken_port_is_moved_and_remembered(moved: tuple[Layout, str]) -> None:
    """`up` says which port was taken and which it uses; later commands find them whatever LAB_BASE_PORT says."""
    layout, printed = moved
    assert layout.base_port != DEFAULT_BASE_PORT
    assert f"port {DEFAULT_BASE_PORT + Port.WEBHOOK} for webhook is taken by " in printed
    for base_port in ("", "8", "abc", "64000"):
        status = run(layout.root, "status", base_port=base_port)
        assert status.returncode == 0, status.stderr
        doctor = run(layout.root, "doctor", base_port=base_port)
        ports = f"{layout.base_port} to {layout.base_port + max(Port)}"
        assert f"{ports} are in use by this lab" in doctor.stdout, doctor.stderr


@pytest.mark.parametrize("shell", [shell for shell in ("sh", "bash", "zsh", "fish") if shutil.which(shell)])
def test_pasted_line_makes_kubectl_gpu_work(moved: tuple[Layout, str], tmp_path: Path, shell: str) -> None:
    """The last line that `up` prints is all that a fresh shell needs."""
    _, printed = moved
    line = printed.splitlines()[-1]
    done = subprocess.run(
        [str(shutil.which(shell)), "-c", f"{line}\nkubectl gpu top"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines()]
    assert rows[1:] == [[node, "Ready", "8"] for node in SIMULATED_NODES]


def test_simulated_pod_says_that_nothing_runs(moved: tuple[Layout, str]) -> None:
    """`kubectl rollout status` succeeds; `up`, `kubectl get pods` and `kubectl get nodes` say that nothing runs."""
    layout, printed = moved
    assert "gpu-sim-0, gpu-sim-1, gpu-sim-2 are simulated: no kubelet runs there" in printed
    list(demos.opt_in(layout))
    limits = {"limits": {"nvidia.com/gpu": 1}}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ghost"},
        "spec": {
            "selector": {"matchLabels": {"demo": "ghost"}},
            "template": {
                "metadata": {"labels": {"demo": "ghost"}},
                "spec": {"containers": [{"name": "main", "image": "no.such/image", "resources": limits}]},
            },
        },
    }
    kubectl.run(layout, "-n", demos.NAMESPACE, "create", "-f", "-", stdin=json.dumps(manifest))
    kubectl.run(layout, "-n", demos.NAMESPACE, "rollout", "status", "deployment/ghost", KUBECTL_PATIENCE)
    (row,) = kubectl.run(layout, "-n", demos.NAMESPACE, "get", "pods", "-l", "demo=ghost", "--no-headers").splitlines()
    assert row.split()[1:3] == ["1/1", "Simulated"]
    described = kubectl.run(layout, "-n", demos.NAMESPACE, "describe", "pods", "-l", "demo=ghost")
    assert "is simulated: the pod is reported Ready, but its containers do not run" in described
    for line in kubectl.run(layout, "get", "nodes", "--no-headers").splitlines():
        assert line.split()[1:3] == ["Ready", "simulated"]


def test_second_up_heals_lost_namespaces(moved: tuple[Layout, str]) -> None:
    """Namespaces that are being deleted are recreated, and processes that lost their identity get a new one."""
    layout, _ = moved
    assert run(layout.root, "demo-fractional").returncode == 0
    before = {path.name: path.read_text() for path in layout.run.glob("*.json")}
    lost = ("tranche-system", "tranche-lab", demos.NAMESPACE)
    kubectl.run(layout, "delete", "namespace", *lost, "--wait=false")
    again = run(layout.root, "up", "--no-real-node")
    assert again.returncode == 0, again.stderr
    after = {path.name: path.read_text() for path in layout.run.glob("*.json")}
    replaced = {name for name in after if after[name] != before[name]}
    names = ("simulated-nodes", "local-provisioner", "agent", "webhook", "scheduler")
    assert replaced == {f"{name}.json" for name in names}
    for command in ("demo-fractional", "demo-static", "demo-placement"):
        done = run(layout.root, command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_failed_start_is_taken_down(tmp_path: Path) -> None:
    """After a start that fails half way, `status`, `doctor` and `down` work whatever LAB_BASE_PORT says."""
    assets, root = tmp_path / "assets", tmp_path / "lab"
    binaries.provide(assets)
    (assets / "kube-apiserver").unlink()
    (assets / "kube-apiserver").write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    (assets / "kube-apiserver").chmod(0o755)
    failed = run(root, "up", "--no-real-node", KUBEBUILDER_ASSETS=str(assets))
    assert failed.returncode == 1
    assert "no such flag" in failed.stderr
    layout = remembered(root)
    assert layout is not None
    assert processes.strays(layout)
    for base_port in ("8", "abc", "64000"):
        status = run(root, "status", base_port=base_port)
        assert "scheduler        not running" in status.stdout, status.stderr
        doctor = run(root, "doctor", base_port=base_port)
        assert "up: etcd" in doctor.stdout, doctor.stderr
    down = run(root, "down", base_port="8")
    assert down.returncode == 0, down.stderr
    assert not processes.strays(layout)
    assert {entry.name for entry in root.iterdir()} == {"lock", "logs"}
