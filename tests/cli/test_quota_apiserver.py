"""`kubectl gpu quota` with the quotas of a real API server, by the rights of a viewer."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.resource import GPU_QUOTAS
from lab import kubectl
from lab.client import client
from lab.layout import Layout
from tests.cli.conftest import TEAM, Gpu

ROOT = Path(__file__).parents[2]
TENANT = "tenant"
MEMORY = "nvidia.com/gpumem"

pytestmark = pytest.mark.apiserver


def objects() -> list[dict[str, Any]]:
    """Return quotas of the team, which holds 3000 MiB, and a user who may read this namespace only."""
    quota = {"apiVersion": GPU_QUOTAS.api_version, "kind": GPU_QUOTAS.kind}
    metadata = {"namespace": TEAM}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "name": TENANT}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {**metadata, "name": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tranche-viewer"},
        "subjects": [{"kind": "ServiceAccount", "name": TENANT, "namespace": TEAM}],
    }
    return [
        {
            **quota,
            "metadata": {**metadata, "name": "team"},
            "spec": {
                "total": {"limits": {MEMORY: 3125}, "maxPods": 4},
                "single": {"limits": {MEMORY: 4000}, "maxCards": 2, "defaults": {MEMORY: 100}},
            },
        },
        {**quota, "metadata": {**metadata, "name": "wide"}, "spec": {"total": {"limits": {"nvidia.com/gpu": 8}}}},
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {**metadata, "name": "compute"},
            "spec": {"hard": {f"limits.{MEMORY}": "6000", "configmaps": "100"}},
        },
        account,
        binding,
    ]


@pytest.fixture(scope="module", autouse=True)
def quotas(team: Layout) -> Iterator[None]:
    """Two GpuQuotas and a ResourceQuota."""
    kubectl.run(team, "apply", "-f", str(ROOT / "manifests" / "base" / "crds" / "gpuquotas.yaml"))
    kubectl.run(team, "wait", "--for=condition=Established", "crd/gpuquotas.gpu.scheduling")
    client(team).apply(*objects())
    yield
    for each in objects():
        kubectl.run(team, "delete", each["kind"], each["metadata"]["name"], "-n", TEAM)


def test_a_tenant_sees_the_quotas_of_the_namespace(gpu: Gpu) -> None:
    """With what its pods hold, counted from their allocations."""
    done = gpu("quota", "-o", "json", account=TENANT)
    assert done.returncode == 0, done.stderr
    shown = {each["name"]: each for each in json.loads(done.stdout)["quotas"]}
    assert list(shown) == ["team", "wide", "compute"]
    assert shown["team"]["limits"] == [
        {"resource": MEMORY, "used": 3000, "limit": 3125, "availablePercent": "4.00", "nearlyFull": True},
        {"resource": "pods", "used": 1, "limit": 4, "availablePercent": "75.00", "nearlyFull": False},
    ]
    assert shown["wide"]["limits"][0]["used"] == 1
    assert (shown["compute"]["kind"], shown["compute"]["limits"][0]["used"]) == ("ResourceQuota", 3000)


def test_the_quotas_of_all_namespaces_need_the_right_to_read_them(gpu: Gpu) -> None:
    """The message names the role."""
    done = gpu("quota", "-A", account=TENANT)
    assert done.returncode == 1
    assert "list gpuquotas of the whole cluster" in done.stderr
    shown = gpu("quota", "-A")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[0].split() == ["NAMESPACE", "QUOTA", "RESOURCE", "USED", "LIMIT", "LEFT", "ALERT"]
    assert [TEAM, "gpuquota/team", MEMORY, "3000", "3125", "4.00%", "yes"] in [
        line.split() for line in shown.stdout.splitlines()
    ]


def test_one_quota_is_shown_with_what_one_pod_may_have(gpu: Gpu) -> None:
    """The wide table has a row for each resource that it limits."""
    done = gpu("quota", "team", "-o", "wide")
    rows = {line.split()[1]: line.split()[2:] for line in done.stdout.splitlines()[1:]}
    assert rows == {
        "nvidia.com/gpu": ["<none>"] * 4 + ["95%", "2", "<none>"],
        MEMORY: ["3000", "3125", "4.00%", "yes", "95%", "4000", "100"],
        "pods": ["1", "4", "75.00%", "no", "95%", "<none>", "<none>"],
    }
    assert gpu("quota", "ghost").returncode == 1


def test_names_are_those_that_kubectl_takes(gpu: Gpu, team: Layout) -> None:
    """Of either kind."""
    names = gpu("quota", "-o", "name").stdout.split()
    assert len(names) == 3
    assert kubectl.run(team, "get", "-n", TEAM, *names, "-o", "name").split() == names
