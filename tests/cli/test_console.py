"""`kubectl gpu` as a process against a real API server, run by an account that may only view."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from allocation import environment
from allocation.allocation import CardShare

pytestmark = pytest.mark.apiserver

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


def test_env_shows_what_the_pod_was_given(gpu: Gpu) -> None:
    """The variables are those of the allocation, in the namespace of the kubeconfig's context."""
    done = gpu("env", "placed", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["namespace"], data["pod"], data["node"]) == ("cli-team", "placed", "cli-1")
    values = {item["name"]: item["value"] for item in data["containers"][0]["variables"]}
    assert values == environment.values((CardShare("GPU-cli-1-0", 0, 3000, 300),))


def test_env_of_one_container_is_a_table(gpu: Gpu) -> None:
    """Without a format the answer is a table, which scripts may have without its header."""
    lines = gpu("env", "pod/placed", "-c", "main", "--no-headers").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["main", name] for name in environment.references("main", 1)]


def test_env_of_a_waiting_pod_is_empty_with_a_note(gpu: Gpu) -> None:
    """A pod that has not been placed is no failure: its variables are empty, and standard error says why."""
    done = gpu("env", "waiting", "--no-headers")
    assert done.returncode == 0
    assert {len(line.split()) for line in done.stdout.splitlines()} == {2}
    assert done.stderr.startswith("note: pod cli-team/waiting has not been placed yet")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["env", "plain"], "error: pod cli-team/plain has no GPU variables of ours"),
        (["env", "absent"], "error: pod cli-team/absent does not exist; see 'kubectl get pods -n cli-team'"),
        (["env", "placed", "-c", "x"], "error: pod cli-team/placed has no container x; it has main"),
        (["env", "placed", "-n", "default"], "error: pod default/placed does not exist"),
        (["top", "nodes", "absent"], "error: node absent has no cards that an agent or an annotation reports"),
        (["rotate-certs", "--probe", "nowhere"], "error: probe: 'nowhere' is no HOST:PORT"),
        (["rotate-certs", "--drop-old"], "error: drop_old without probe"),
        (["rotate-certs", "--settle", "-1"], "error: Expected `float` >= 0"),
        (["top", "--context", "absent"], "error: kubeconfig "),
    ],
)
def test_a_failure_is_one_line_and_code_1(gpu: Gpu, arguments: list[str], said: str) -> None:
    """What cannot be answered names the object and the next step."""
    done = gpu(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    # Notes about nodes of other tests may stand before it: the suite shares one cluster.
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("note: "))
    assert line.startswith(said)


def test_top_shows_cards_and_who_has_them(gpu: Gpu) -> None:
    """Who may view the cluster sees each card's use and its tenants."""
    done = gpu("top", "nodes", "cli-1")
    assert done.returncode == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["NODE", "CARD", "UUID", "MEMORY(MiB)", "CORES(%)", "SLOTS", "HEALTH", "PODS"],
        ["cli-1", "0", "GPU-cli-1-0", "3000/40960", "30/100", "1/10", "Healthy", "cli-team/placed/main"],
        ["cli-1", "1", "GPU-cli-1-1", "0/40960", "0/100", "0/10", "Unhealthy", "<none>"],
    ]


def test_top_in_yaml(gpu: Gpu) -> None:
    """The structured form holds every node, this one among them."""
    nodes = {node["name"]: node for node in yaml.safe_load(gpu("top", "-o", "yaml").stdout)["nodes"]}
    assert nodes["cli-1"]["cards"][0]["memoryMiB"] == {"used": 3000, "total": 40960}


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (["top"], "error: list gpunodestatuses of the whole cluster: forbidden"),
        (["env", "placed"], "error: get pods in namespace cli-team: forbidden"),
    ],
)
def test_a_missing_permission_is_named(gpu: Gpu, arguments: list[str], missing: str) -> None:
    """Who may not look is told what to ask for."""
    done = gpu(*arguments, account="stranger")
    assert done.returncode == 1
    assert missing in done.stderr
    assert "tranche-viewer (manifests/base/rbac/viewer.yaml), which has it" in done.stderr


def test_top_is_a_line_for_each_node(gpu: Gpu) -> None:
    """Without names a node is a line, and its state says what is wrong there; notes say it in words."""
    done = gpu("top", "--no-headers")
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert lines["cli-1"] == ["Unhealthy(1)", "2", "3000/81920", "30/200", "1/20", "1"]
    assert lines["cli-2"] == ["AgentSilent", "0", "0/0", "0/0", "0/0", "0"]
    assert lines["cli-3"] == ["Ready", "1", "0/8192", "0/100", "0/10", "0"]
    assert "note: agent of node cli-2 is silent: Lease tranche-system/gpu-cli-2 was last renewed at" in done.stderr


def test_top_wide_and_names(gpu: Gpu) -> None:
    """The wide form says whether agents live and what the cards are; names are for other commands of kubectl."""
    lines = {line.split()[0]: line.split()[1:] for line in gpu("top", "-o", "wide").stdout.splitlines()}
    assert [lines[name][6] for name in ("NODE", "cli-1", "cli-2", "cli-3")] == ["AGENT", "Alive", "Silent", "None"]
    assert gpu("top", "cli-3", "-o", "name").stdout == "gpunodestatus.gpu.scheduling/cli-3\n"


def test_top_of_a_namespace(gpu: Gpu) -> None:
    """`-n` shows where a namespace has shares; `-A` is everybody again."""
    assert [line.split()[0] for line in gpu("top", "-n", "cli-team", "--no-headers").stdout.splitlines()] == ["cli-1"]
    done = gpu("top", "-n", "default")
    assert (done.returncode, "note: no cards of which namespace default has shares" in done.stderr) == (0, True)
    assert "cli-3" in gpu("top", "-n", "default", "-A").stdout


def test_who_may_not_read_heartbeats_sees_the_rest(gpu: Gpu) -> None:
    """A right that only part of the answer needs costs that part, and is named."""
    done = gpu("top", "cli-1", "-o", "json", account="operator")
    assert (done.returncode, json.loads(done.stdout)["nodes"][0]["agent"]) == (0, "Unknown")
    assert "whether agents live is not shown: list leases in namespace tranche-system: forbidden" in done.stderr


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
