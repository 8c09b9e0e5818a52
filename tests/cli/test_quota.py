"""The rows of `kubectl gpu quota`, counted from what an API server shows."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION
from allocation.wire.record import encode
from cli import arguments
from cli.errors import CommandError, MissingRightError
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cli.quota import run
from cluster.resource import GPU_QUOTAS, PODS, RESOURCE_QUOTAS
from scheduler.api.quota_types import QuotasView
from scheduler.state.cluster_state import ClusterState
from tests.cli.support.http_server import serving
from tests.scheduler.support.builders import allocated, state
from tests.scheduler.support.quotas import gpu_quota

MEMORY = "nvidia.com/gpumem"
TEAM = {
    "metadata": {"name": "team", "namespace": "default"},
    "spec": {
        "total": {"limits": {MEMORY: 1000}, "maxPods": 4},
        "single": {"limits": {MEMORY: 970, "nvidia.com/gpucores": 50}, "maxCards": 2, "defaults": {MEMORY: 100}},
    },
}
COMPUTE = {
    "metadata": {"name": "compute", "namespace": "default"},
    "spec": {"hard": {f"limits.{MEMORY}": "1920", "pods": "9"}},
}
UNRELATED = {"metadata": {"name": "objects", "namespace": "default"}, "spec": {"hard": {"pods": "9"}}}


def running(name: str, memory: int, namespace: str = "default") -> dict[str, Any]:
    """Return a pod that runs on a card; with 0 MiB it cannot be counted."""
    record = encode(Allocation("n1", {"main": (CardShare("GPU-n1-0", 0, memory, 0),)}))
    limits = {"nvidia.com/gpu": "1", MEMORY: str(memory)}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": {ALLOCATION: record} if memory else {}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


def cluster(namespace: str = "default") -> dict[str, list[Any]]:
    """Return the objects of a namespace by path."""
    return {
        GPU_QUOTAS.path(namespace=namespace): [TEAM],
        RESOURCE_QUOTAS.path(namespace=namespace): [COMPUTE, UNRELATED],
        PODS.path(namespace=namespace): [running("a", 700), running("b", 260)],
    }


def reading(objects: dict[str, list[Any]], failing: int = 0) -> tuple[Any, list[tuple[str, str]]]:
    """Return a server with these objects by path, which fails for GpuQuotas, and the requests that it received."""
    asked: list[tuple[str, str]] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        url = urlsplit(request.path)
        asked.append((url.path, parse_qs(url.query).get("fieldSelector", [""])[0]))
        if failing and url.path.endswith(GPU_QUOTAS.plural):
            return failing, b"{}"
        return 200, json.dumps({"metadata": {}, "items": objects.get(url.path, [])}).encode()

    return serving(respond), asked


def quota(objects: dict[str, list[Any]], *words: str, failing: int = 0) -> list[tuple[str, str]]:
    """Run the command and return the requests that it sent."""
    server, asked = reading(objects, failing)
    with server as url:
        access = Access(url, None, "", {}, "default", "test")
        assert run(Session(Client(access), "default", access), arguments.parse(["quota", *words])) == 0
    return asked


def rows(printed: str) -> list[list[str]]:
    """Return the cells of each row, without the headers."""
    return [line.split() for line in printed.splitlines()[1:]]


def test_a_row_has_what_is_used_and_left_of_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """Of GpuQuotas, then of the ResourceQuotas that limit GPU resources; only of the namespace."""
    asked = quota(cluster())
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split() == ["QUOTA", "RESOURCE", "USED", "LIMIT", "LEFT", "ALERT"]
    assert rows(printed) == [
        ["gpuquota/team", MEMORY, "960", "1000", "4.00%", "yes"],
        ["gpuquota/team", "pods", "2", "4", "50.00%", "no"],
        ["resourcequota/compute", MEMORY, "960", "1920", "50.00%", "<none>"],
    ]
    assert dict(asked)[PODS.path(namespace="default")].startswith("spec.nodeName!=")
    assert PODS.path() not in dict(asked)


def test_the_wide_table_adds_what_one_pod_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    """A resource that only one pod is limited in has a row of its own; cards are limited by `maxCards`."""
    quota(cluster(), "-o", "wide")
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].split()[-3:] == ["THRESHOLD", "SINGLE", "DEFAULT"]
    assert [row[1:2] + row[2:3] + row[-3:] for row in rows(printed)] == [
        ["nvidia.com/gpu", "<none>", "95%", "2", "<none>"],
        ["nvidia.com/gpucores", "<none>", "95%", "50", "<none>"],
        [MEMORY, "960", "95%", "970", "100"],
        ["pods", "2", "95%", "<none>", "<none>"],
        [MEMORY, "960", "<none>", "<none>", "<none>"],
    ]


def test_all_namespaces_are_shown_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    """A quota without limits has a row, too: it is there."""
    empty = {"metadata": {"name": "empty", "namespace": "other"}, "spec": {}}
    quota({GPU_QUOTAS.path(): [empty, TEAM], PODS.path(): [running("x", 5, "other")]}, "-A")
    assert rows(capsys.readouterr().out) == [
        ["default", "gpuquota/team", MEMORY, "0", "1000", "100.00%", "no"],
        ["default", "gpuquota/team", "pods", "0", "4", "100.00%", "no"],
        ["other", "gpuquota/empty", *["<none>"] * 5],
    ]


def test_one_quota_is_chosen_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is wrong does not print an empty table."""
    quota(cluster(), "compute")
    assert [row[0] for row in rows(capsys.readouterr().out)] == ["resourcequota/compute"]
    with pytest.raises(CommandError, match="is named ghost in namespace default"):
        quota(cluster(), "ghost")


def test_json_has_the_fields_of_the_api(capsys: pytest.CaptureFixture[str]) -> None:
    """Both are of one type."""
    quota(cluster(), "-o", "json")
    view = msgspec.json.decode(capsys.readouterr().out, type=QuotasView)
    assert [(each.name, each.pods, each.fullest) for each in view.quotas] == [
        ("team", 2, MEMORY),
        ("compute", 2, MEMORY),
    ]


def test_names_are_those_of_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    """`kubectl get` takes them."""
    quota(cluster(), "-o", "name")
    assert capsys.readouterr().out == "gpuquota.gpu.scheduling/team\nresourcequota/compute\n"


def test_notes_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no quota, or pods run whose share cannot be read."""
    quota({PODS.path(namespace="default"): [running("a", 0)]})
    notes = capsys.readouterr().err
    assert "no GpuQuota, and no ResourceQuota that limits GPU resources, in namespace default" in notes
    assert "namespace default: 1 running pods cannot be counted" in notes


def test_a_cluster_without_the_resource_is_an_error() -> None:
    """The message has the next step; a missing right names the role."""
    with pytest.raises(CommandError, match=r"gpuquotas.gpu.scheduling is not defined in this cluster"):
        quota({}, failing=404)
    with pytest.raises(MissingRightError, match="list gpuquotas in namespace default"):
        quota({}, failing=403)


def test_the_command_counts_as_the_scheduler_does(capsys: pytest.CaptureFixture[str]) -> None:
    """The running sums of the scheduler are the same numbers."""
    made: ClusterState = state("n1")
    made.limits.set_gpu_quota(gpu_quota("team", total={"limits": {MEMORY: 1000}, "maxPods": 4}))
    for name, memory in (("a", 700), ("b", 260)):
        made.set_pod(allocated(name, node="n1", memory=memory))
    use = made.quotas.use("default")
    quota(cluster(), "team", "-o", "json")
    (shown,) = msgspec.json.decode(capsys.readouterr().out, type=QuotasView).quotas
    assert (shown.limits[0].used, shown.pods) == (use.memory_mib, use.pods) == (960, 2)
