"""`kubectl gpu gangs` and `explain` beside a gang that waits, with a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from allocation.wire import environment
from lab import kubectl
from lab.client import client
from lab.layout import Layout
from tests.cli.conftest import NODE, TEAM, Gpu

GANG = "cli-gang"
NOTE = f"1 of the 3 pods that gang {TEAM}/{GANG} needs have a place"

pytestmark = pytest.mark.apiserver


def member(name: str) -> dict[str, Any]:
    """Return a pod after admission that asks for the only healthy card of the cluster, and needs two others."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "30000"}},
        "env": [
            {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}}
            for variable, key in environment.references("main", 1).items()
        ],
    }
    metadata = {
        "name": name,
        "namespace": TEAM,
        "labels": {"gpu.scheduling/gang": GANG},
        "annotations": {"gpu.scheduling/gang-min-members": "3"},
    }
    spec = {"schedulerName": "tranche", "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture(scope="module", autouse=True)
def gang(team: Layout) -> Iterator[None]:
    """Three pods that wait, of which the first says why, and a node that has room for ten: no scheduler runs."""
    names = [f"gang-{index}" for index in range(3)]
    client(team).apply(*map(member, names))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NOTE}
    patch = json.dumps({"status": {"conditions": [condition]}})
    kubectl.run(team, "patch", "pod", names[0], "-n", TEAM, "--subresource=status", "--type=strategic", "-p", patch)
    _allow(team, {"pods": "10"})
    yield
    _allow(team, None)
    kubectl.run(team, "delete", "pod", *names, "-n", TEAM, "--ignore-not-found", "--now")


def _allow(team: Layout, allocatable: dict[str, str] | None) -> None:
    """Set what the node with cards has for pods."""
    patch = json.dumps({"status": {"allocatable": allocatable, "capacity": allocatable}})
    kubectl.run(team, "patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)


def test_a_viewer_sees_the_gang_and_its_pods(gpu: Gpu) -> None:
    """In the own namespace by default; the reason is that of a pod's condition."""
    done = gpu("gangs", "-o", "json")
    assert done.returncode == 0, done.stderr
    (shown,) = [each for each in json.loads(done.stdout)["gangs"] if each["name"] == GANG]
    assert (shown["state"], shown["size"], shown["placed"], shown["waiting"]) == ("Waiting", 3, 0, 3)
    assert shown["message"] == NOTE
    table = gpu("gangs", GANG, "-o", "wide").stdout.splitlines()
    assert table[0] == f"gang {TEAM}/{GANG}: Waiting, 0 of 3 pods have nodes"
    assert [line.split()[:2] for line in table[-3:]] == [[f"gang-{index}", "waiting"] for index in range(3)]
    everywhere = gpu("gangs", "-A", "--no-headers").stdout
    assert f"{TEAM}  " in everywhere
    assert GANG in everywhere


def test_explain_says_how_many_members_fit(gpu: Gpu) -> None:
    """Each of them would fit alone."""
    done = gpu("explain", "gang-2")
    assert done.returncode == 0, done.stderr
    assert f"pod {TEAM}/gang-2 waits: {NOTE}; pod {TEAM}/gang-1: no available node" in done.stdout
    assert f"gang: {GANG}: Waiting, needs 3, 0 placed, 3 waiting; 1 of 3 members fit\n" in done.stdout
    assert "gang member gang-1: no available node" in done.stdout


def test_a_user_without_rights_and_an_unknown_gang_have_errors(gpu: Gpu) -> None:
    """The message has the next step."""
    refused = gpu("gangs", account="stranger")
    assert (refused.returncode, "forbidden" in refused.stderr) == (1, True)
    unknown = gpu("gangs", "ghost")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert f"gang ghost does not exist in namespace {TEAM}; 'kubectl gpu gangs -A'" in unknown.stderr
