"""The recording in docs/troubleshooting.md is what `kubectl gpu` prints for the local cluster's cards."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from agent.declared import fleet as declared
from cli.explain.explain import text
from cli.explain.local_evaluator import LocalEvaluator
from cli.installation.rules import Rules
from cli.liveness.liveness import Liveness
from cli.workloads import expand
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from lab import fleet, simulated
from lab.layout import Layout
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, namespace, node, pod, state

PAGE = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
EXAMPLE = PAGE.partition("\n## An example\n")[2].partition("\n## ")[0]
CUT = "…"
TEAM = "team"


def recorded(command: str) -> list[str]:
    """Return the lines that the page shows below a command, up to the next one."""
    blocks: list[str] = re.findall(r"```console\n(.*?)```", EXAMPLE, re.DOTALL)
    (block,) = (each for each in blocks if f"{command}\n" in each)
    return block.partition(f"{command}\n")[2].partition("\n$ ")[0].rstrip().splitlines()


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether a recording is the printed text: `…` ends a line that is cut, and alone stands for the rest."""
    if shown[-1] == CUT:
        shown, printed = shown[:-1], printed[: len(shown) - 1]
    return len(shown) == len(printed) and all(
        line.startswith(cut.removesuffix(CUT).rstrip()) if cut.endswith(CUT) else line.rstrip() == cut
        for cut, line in zip(shown, printed, strict=True)
    )


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterState:
    """The nodes of `make up`, with the pod that runs on one of them."""
    made = state()
    made.limits.set_namespace(namespace(TEAM, **{"gpu.scheduling/injection": "enabled"}))
    written = fleet.write(Layout(tmp_path, 14900), real_node=True)
    for name, report in declared.parse(written.read_bytes(), file="fleet").items():
        made.set_node(node(name, status={"allocatable": simulated.CAPACITY}))
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status_of(report.inventory)))
    made.set_pod(allocated("runs", node="gpu-sim-0", memory=3000, namespace=TEAM))
    return made


def evaluator(cluster: ClusterState) -> LocalEvaluator:
    """Return what the commands evaluate pods with."""
    alive = Liveness(installed=True, parts=())
    return LocalEvaluator(cluster, Rules(), alive, budgets=DisruptionBudgets(), namespace=TEAM, cards_of=None)


def limits(memory: int) -> list[dict[str, Any]]:
    """Return the containers of the example."""
    amounts = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": str(memory)}
    return [{"name": "main", "image": "train", "resources": {"limits": amounts, "requests": amounts}}]


def arguments(node: str = "") -> argparse.Namespace:
    """Return the arguments of a command."""
    return argparse.Namespace(node=node, output=None, no_headers=False)


def test_explain_prints_what_is_recorded(cluster: ClusterState) -> None:
    """A pod whose memory no card has."""
    train: Pod = pod("train", namespace=TEAM, containers=limits(90000))
    cluster.set_pod(train)
    printed = text(evaluator(cluster).explain(train), arguments("gpu-sim-0")).splitlines()
    shown = recorded("$ kubectl gpu explain train --node gpu-sim-0")
    assert matches(shown, printed), "\n".join(printed)


def test_simulate_prints_what_is_recorded(cluster: ClusterState) -> None:
    """The same pod with less memory."""
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": {"containers": limits(60000)}}
    (workload,) = expand.of(document)
    simulation, _ = evaluator(cluster).simulate(workload, every=False)
    assert simulation.explanation is not None
    printed = text(simulation.explanation, arguments()).rstrip().splitlines()
    shown = recorded("$ sed 's/90000/60000/' train.yaml | kubectl gpu simulate -f -")
    assert matches(shown, printed), "\n".join(printed)
