"""`kubectl gpu` as a process against a real API server, with the rights of a viewer."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from allocation.allocation import CardShare
from allocation.wire import environment

pytestmark = pytest.mark.apiserver

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


def test_env_shows_the_allocated_variables(gpu: Gpu) -> None:
    """The variables are those of the allocation, in the namespace of the kubeconfig's context."""
    done = gpu("env", "placed", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["namespace"], data["pod"], data["node"]) == ("cli-team", "placed", "cli-1")
    values = {item["name"]: item["value"] for item in data["containers"][0]["variables"]}
    assert values == environment.values((CardShare("GPU-cli-1-0", 0, 3000, 300),))


def test_env_of_one_container_is_a_table(gpu: Gpu) -> None:
    """The default output is a table, whose header can be omitted."""
    lines = gpu("env", "pod/placed", "-c", "main", "--no-headers").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["main", name] for name in environment.references("main", 1)]


def test_env_of_a_waiting_pod_is_empty(gpu: Gpu) -> None:
    """The command succeeds: the variables are empty, and a note says why."""
    done = gpu("env", "waiting", "--no-headers")
    assert done.returncode == 0
    assert {len(line.split()) for line in done.stdout.splitlines()} == {2}
    assert done.stderr.startswith("note: pod cli-team/waiting has not been placed yet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["env", "plain"], "error: pod cli-team/plain has no GPU variables from Tranche"),
        (["env", "absent"], "error: pod cli-team/absent does not exist; see 'kubectl get pods -n cli-team'"),
        (["env", "placed", "-c", "x"], "error: pod cli-team/placed has no container x; it has main"),
        (["env", "placed", "-n", "default"], "error: pod default/placed does not exist"),
        (["top", "nodes", "absent"], "error: node absent has no cards reported by an agent or an annotation"),
        (["rotate-certs", "--probe", "nowhere"], "error: probe: 'nowhere' is not HOST:PORT"),
        (["rotate-certs", "--drop-old"], "error: drop_old without probe"),
        (["rotate-certs", "--settle", "-1"], "error: Expected `float` >= 0"),
        (["top", "--context", "absent"], "error: kubeconfig "),
    ],
)
def test_failure_is_one_line_and_code_1(gpu: Gpu, arguments: list[str], message: str) -> None:
    """The line names the object and the next step."""
    done = gpu(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    # Notes about nodes of other tests may precede it: the suite shares one cluster.
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("note: "))
    assert line.startswith(message)


def test_top_shows_cards_and_their_pods(gpu: Gpu) -> None:
    """A viewer of the cluster sees the usage and the pods of each card."""
    done = gpu("top", "nodes", "cli-1")
    assert done.returncode == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["NODE", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)", "SLOTS", "HEALTH", "PODS"],
        ["cli-1", "0", "GPU-cli-1-0", "3000/40960", "30/100", "1/10", "Healthy", "cli-team/placed/main"],
        ["cli-1", "1", "GPU-cli-1-1", "0/40960", "0/100", "0/10", "Unhealthy", "<none>"],
    ]


def test_top_in_yaml(gpu: Gpu) -> None:
    """YAML has every node with its cards."""
    nodes = {node["name"]: node for node in yaml.safe_load(gpu("top", "-o", "yaml").stdout)["nodes"]}
    assert nodes["cli-1"]["cards"][0]["memoryMiB"] == {"used": 3000, "total": 40960}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["top"], "error: list gpunodestatuses of the whole cluster: forbidden"),
        (["env", "placed"], "error: get pods in namespace cli-team: forbidden"),
    ],
)
def test_missing_right_is_named(gpu: Gpu, arguments: list[str], missing: str) -> None:
    """The error names the right, and the role that grants it."""
    done = gpu(*arguments, account="stranger")
    assert done.returncode == 1
    assert missing in done.stderr
    assert "tranche-viewer (manifests/base/rbac/viewer.yaml), which grants it" in done.stderr


def test_top_has_a_row_for_each_node(gpu: Gpu) -> None:
    """The state of a node names its problems, and notes describe them."""
    done = gpu("top", "--no-headers")
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert lines["cli-1"] == ["Unhealthy(1)", "2", "3000/81920", "30/200", "1/20", "1"]
    assert lines["cli-2"] == ["AgentSilent", "0", "0/0", "0/0", "0/0", "0"]
    assert lines["cli-3"] == ["Ready", "1", "0/8192", "0/100", "0/10", "0"]
    assert "note: agent of node cli-2 is silent: Lease tranche-system/agent-cli-2 was last renewed at" in done.stderr


def test_top_wide_and_names(gpu: Gpu) -> None:
    """The wide table has the agents' state and the cards' models; names are for other commands of kubectl."""
    lines = {line.split()[0]: line.split()[1:] for line in gpu("top", "-o", "wide").stdout.splitlines()}
    assert [lines[name][6] for name in ("NODE", "cli-1", "cli-2", "cli-3")] == ["AGENT", "Alive", "Silent", "None"]
    assert gpu("top", "cli-3", "-o", "name").stdout == "gpunodestatus.gpu.scheduling/cli-3\n"


def test_top_of_a_namespace(gpu: Gpu) -> None:
    """`-n` selects nodes on which a namespace has shares; `-A` selects all."""
    assert [line.split()[0] for line in gpu("top", "-n", "cli-team", "--no-headers").stdout.splitlines()] == ["cli-1"]
    done = gpu("top", "-n", "default")
    assert (done.returncode, "note: no cards with shares of namespace default" in done.stderr) == (0, True)
    assert "cli-3" in gpu("top", "-n", "default", "-A").stdout


def test_unreadable_heartbeats_are_noted(gpu: Gpu) -> None:
    """Without the right to read Leases only the agents' state is unknown, and a note names the right."""
    done = gpu("top", "cli-1", "-o", "json", account="operator")
    assert (done.returncode, json.loads(done.stdout)["nodes"][0]["agent"]) == (0, "Unknown")
    assert "the state of agents is not shown: list leases in namespace tranche-system: forbidden" in done.stderr


def test_a_missing_kubeconfig_is_one_line(tmp_path: Path) -> None:
    """Without a cluster there is one line that says how to name one."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "top", "--kubeconfig", str(tmp_path / "absent")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: kubeconfig ")
    assert done.stderr.count("\n") == 1
