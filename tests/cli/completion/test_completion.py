"""Completion in a real bash and by a real kubectl, with candidates from a real cluster."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allocation.names import ALLOCATION
from cli import commands
from cli.completion import complete
from cli.completion.scripts import run
from cluster.resource import GPU_CLAIMS, GPU_QUEUES, GPU_QUOTAS, KUBERNETES_POD_GROUPS, PODS, Resource
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.cli.support.http_server import serving

ROOT = Path(__file__).parents[3]
TEAM = "cli-team"


def _words(*typed: str) -> list[str]:
    offered, directive = complete.candidates(typed)
    assert directive == 4
    return [word for word, _ in offered]


def test_commands_flags_and_formats_are_completed() -> None:
    """The declarations of the commands are completed, without a separate list."""
    assert _words("") == [name for name, _ in commands.every()]
    assert _words("un") == ["uncordon"]
    assert _words("top", "--ca") == ["--cards"]
    assert _words("top", "-o", "") == ["table", "wide", "json", "yaml", "name"]
    assert _words("-n", "team", "top", "--output", "j") == ["json"]
    assert _words("cordon", "--dry-run=c") == ["--dry-run=client"]
    assert "--namespace" not in _words("top", "-n", "team", "--")


def test_files_are_left_to_the_shell() -> None:
    """The shell completes file names."""
    assert complete.candidates(["inject", "-f", "ma"]) == ([], 0)


def test_error_gives_no_candidates(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A user who presses Tab sees no error message."""
    assert complete.main(["env", "--kubeconfig", str(tmp_path / "absent"), ""]) == 0
    assert capfd.readouterr() == (":4\n", "")


@pytest.mark.parametrize(("command", "resource"), [("queues", GPU_QUEUES), ("quota", GPU_QUOTAS)])
def test_queues_and_quotas_are_completed(command: str, resource: Resource, tmp_path: Path) -> None:
    """By the names of the GpuQueues, or those of the GpuQuotas of the namespace."""
    items = [{"metadata": {"name": "team-a"}}, {"metadata": {"name": "team-b"}}]
    lists = dict.fromkeys((resource.path(), resource.path(namespace="default")), items)
    with serving(lambda request: _list(lists.get(request.path.partition("?")[0]))) as url:
        assert _words(command, "--kubeconfig", _kubeconfig(tmp_path, url), "") == ["team-a", "team-b"]


def test_gangs_are_completed(tmp_path: Path) -> None:
    """By what the pods of the namespace declare, and their GpuClaims; a value that cannot be read is left out."""
    keys = {"gpu.scheduling/gang-by": "job"}
    pods: list[dict[str, Any]] = [
        {"labels": {"gpu.scheduling/gang": "train"}},
        {"labels": {"job": "eval"}, "annotations": keys},
        {"annotations": keys},
        {"annotations": {"gpu.scheduling/claim": "c"}},
        {},
    ]
    claim = {"metadata": {"name": "c"}, "spec": {"gangRef": "by-claim", "devices": {"count": 1}}}
    lists = {
        PODS.path(namespace="default"): [{"metadata": {"name": "p", **each}} for each in pods],
        GPU_CLAIMS.path(namespace="default"): [claim],
    }
    with serving(lambda request: _list(lists.get(request.path.partition("?")[0]))) as url:
        assert _words("gangs", "--kubeconfig", _kubeconfig(tmp_path, url), "") == ["by-claim", "eval", "train"]


def test_gangs_that_pods_name_in_their_spec_are_completed(tmp_path: Path) -> None:
    """By the PodGroups of Kubernetes, where the cluster has them; specs of pods are not read."""
    lists = {
        PODS.path(namespace="default"): [{"metadata": {"name": "p"}}],
        GPU_CLAIMS.path(namespace="default"): [],
        KUBERNETES_POD_GROUPS.path(namespace="default"): [{"metadata": {"name": "ring"}}],
    }
    with serving(lambda request: _list(lists.get(request.path.partition("?")[0]))) as url:
        assert _words("gangs", "--kubeconfig", _kubeconfig(tmp_path, url), "") == ["ring"]


@pytest.mark.parametrize("command", ["env", "resize"])
def test_containers_are_completed(command: str, tmp_path: Path) -> None:
    """Of the pod that the line names before, those with cards marked; without a pod there are no candidates."""
    share = {"uuid": "GPU-a", "index": 0, "memoryMiB": 1, "cores": 1}
    allocation = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share]}})
    spec = {"initContainers": [{"name": "first"}], "containers": [{"name": "main"}, {"name": "side"}]}
    pod = {"metadata": {"name": "p", "namespace": "default", "annotations": {ALLOCATION: allocation}}, "spec": spec}
    path = PODS.path(namespace="default", name="p")
    with serving(lambda request: (200, json.dumps(pod).encode()) if request.path == path else (404, b"{}")) as url:
        config = ("--kubeconfig", _kubeconfig(tmp_path, url))
        assert _words(command, *config, "p", "-c", "") == ["first", "main", "side"]
        assert _words(command, *config, "p", "--container=s") == ["--container=side"]
        assert complete.candidates([command, *config, "p", "-c", "m"])[0] == [("main", "has cards")]
        assert _words(command, *config, "-c", "") == []


def _list(items: list[dict[str, Any]] | None) -> tuple[int, bytes]:
    return (404, b"{}") if items is None else (200, json.dumps({"metadata": {}, "items": items}).encode())


def _kubeconfig(folder: Path, url: str) -> str:
    """Write a kubeconfig for a server, and return its path."""
    config = folder / "config"
    context = {"name": "c", "context": {"cluster": "c", "user": ""}}
    clusters = [{"name": "c", "cluster": {"server": url}}]
    config.write_text(json.dumps({"clusters": clusters, "contexts": [context], "current-context": "c", "users": []}))
    return str(config)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH with the plugin and its completer, as after an installation."""
    for name, module in (("kubectl-gpu", "cli"), ("kubectl_complete-gpu", "cli.completion.complete")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {module} "$@"\n')
        script.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def _bash(path: str, line: str, *, script: str, kubeconfig: str = "") -> list[str]:
    """Return bash's candidates at the end of `line`."""
    program = f"""{script}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}
_kubectl_gpu; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = subprocess.run(
        ["bash", "--norc", "-c", program],
        env={**os.environ, "PATH": path, "KUBECONFIG": kubeconfig},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def script(path: str) -> str:
    """The output of `kubectl gpu completion bash`."""
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    return subprocess.run(
        ["kubectl-gpu", "completion", "bash"], env={"PATH": path}, capture_output=True, text=True, check=True
    ).stdout


def test_bash_completes_commands_and_flags(path: str, script: str, tmp_path: Path) -> None:
    """A value after an equals sign is completed too, although bash treats it as a separate word."""
    assert _bash(path, "kubectl-gpu unc", script=script) == ["uncordon"]
    assert _bash(path, "kubectl-gpu top --no", script=script) == ["--no-headers"]
    assert _bash(path, "kubectl-gpu cordon --dry-run=s", script=script) == ["server"]
    (tmp_path / "pod.yaml").touch()
    assert _bash(path, f"kubectl-gpu inject -f {tmp_path}/pod", script=script) == [f"{tmp_path}/pod.yaml"]


def test_bash_script_registers_itself(path: str, script: str) -> None:
    """Sourcing the script is enough."""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script}\ncomplete -p kubectl-gpu"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "complete -F _kubectl_gpu kubectl-gpu\n"


@pytest.mark.apiserver
def test_bash_completes_names_from_the_cluster(path: str, script: str, team: Layout) -> None:
    """Pods of the context's namespace or of -n, nodes with cards, UUIDs that are not on the line yet, namespaces."""
    kubeconfig = str(team.kubeconfig)
    assert _bash(path, f"kubectl-gpu -n {TEAM} env pl", script=script, kubeconfig=kubeconfig) == ["placed", "plain"]
    assert _bash(path, "kubectl-gpu top cli-", script=script, kubeconfig=kubeconfig) == ["cli-1", "cli-2"]
    assert _bash(path, "kubectl-gpu top -n cli-", script=script, kubeconfig=kubeconfig) == [TEAM]
    line = "kubectl-gpu cordon GPU-cli-1-0 GPU-cli"
    assert _bash(path, line, script=script, kubeconfig=kubeconfig) == ["GPU-cli-1-1"]


@pytest.mark.apiserver
def test_kubectl_runs_the_completer(path: str, team: Layout) -> None:
    """Kubectl's own completion finds the completer and passes on its candidates."""
    kubeconfig = service_account_kubeconfig(team, namespace=TEAM, name="viewer")
    done = subprocess.run(
        [str(team.bin / "kubectl"), "__complete", "gpu", "env", "pl"],
        env={"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["placed", "plain", ":4"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shell parses the script; skipped if the shell is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine")
    run(type("Arguments", (), {"shell": shell})())
    (tmp_path / "script").write_text(capsys.readouterr().out)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
