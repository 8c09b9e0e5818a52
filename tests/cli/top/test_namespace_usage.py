"""`kubectl gpu top --namespaces`: the usage that the scheduler counts, next to the limits of the quotas."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare, ClaimMark
from allocation.pod import Resources
from allocation.settings import AllocationSettings
from allocation.wire import environment
from cli.kube.objects import Pod, PodContainer
from cli.top.namespace_usage import NamespaceUsage, ResourceUsage, count
from cluster.resource_quota import ResourceQuota
from lab import kubectl
from lab.client import client
from lab.layout import Layout
from tests.scheduler.support.quotas import gpu_quota

DEFINITION = Path(__file__).parents[3] / "manifests" / "base" / "crds" / "gpuquotas.yaml"

Gpu = Callable[..., "subprocess.CompletedProcess[str]"]


def pod(name: str, *, node: str = "n1", memory: int = 3000, cores: int = 300, **asked: str) -> Pod:
    """Return a pod of namespace `team` with one share of a card."""
    limits = {"nvidia.com/gpu": "1", **{f"nvidia.com/{key}": value for key, value in asked.items()}}
    share = CardShare("GPU-0", 0, memory, cores)
    body = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "annotations": environment.annotations(Allocation(node, {"main": (share,)})),
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    return msgspec.convert(body, Pod)


def quota(name: str, **hard: str) -> ResourceQuota:
    """Return a quota of namespace `team`; keys without `limits.nvidia.com/`."""
    keys = {f"limits.nvidia.com/{key.replace('_', '-')}": value for key, value in hard.items()}
    return msgspec.convert({"metadata": {"name": name, "namespace": "team"}, "spec": {"hard": keys}}, ResourceQuota)


def only(*arguments: Any, settings: AllocationSettings | None = None) -> NamespaceUsage:
    """Return the usage of the only namespace."""
    (found,) = count(*arguments, settings or AllocationSettings()).namespaces
    return found


def test_usage_of_all_four_resources_is_shown_with_its_limit() -> None:
    """Each limit names the quota that sets the smallest one; a percentage is charged as memory."""
    pods = [pod("a", gpumem="3000", gpucores="30"), pod("b", memory=4096, cores=0, **{"gpumem-percentage": "10"})]
    quotas = [quota("all", gpu="4", gpumem="9000", gpumem_percentage="50"), quota("less", gpumem="8000")]
    found = only(pods, quotas)
    assert (found.name, found.pods, found.uncounted) == ("team", 2, 0)
    note = "not enforced: a percentage is charged as nvidia.com/gpumem, limit that instead"
    assert found.resources == (
        ResourceUsage("nvidia.com/gpu", 2, 4, "all", "ResourceQuota"),
        ResourceUsage("nvidia.com/gpumem", 7096, 8000, "less", "ResourceQuota"),
        ResourceUsage("nvidia.com/gpumem-percentage", 10, 50, "all", "ResourceQuota", note),
        ResourceUsage("nvidia.com/gpucores", 30),
    )


def test_a_gpu_quota_that_is_closer_is_the_limit() -> None:
    """All quotas hold, so the smallest limit is shown, with its kind."""
    closer = gpu_quota("team", namespace="team", total={"limits": {"nvidia.com/gpumem": 7000, "nvidia.com/gpu": 9}})
    (found,) = count(
        [pod("a", gpumem="3000")], [quota("all", gpu="4", gpumem="9000")], AllocationSettings(), gpu_quotas=[closer]
    ).namespaces
    assert found.resources[:2] == (
        ResourceUsage("nvidia.com/gpu", 1, 4, "all", "ResourceQuota"),
        ResourceUsage("nvidia.com/gpumem", 3000, 7000, "team", "GpuQuota"),
    )
    (alone,) = count([], [], AllocationSettings(), gpu_quotas=[closer]).namespaces
    assert alone.resources[0].cell == "gpuquota/team"


def test_the_cards_of_a_claim_count_once() -> None:
    """Admission writes the request into each GPU container, and they share the cards."""
    shares = tuple(CardShare(f"GPU-{index}", index, 40000, 1000) for index in range(2))
    allocation = Allocation("n1", dict.fromkeys(("main", "side"), shares), ClaimMark("pair", "Exclusive"))
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100"}
    made = pod("a")
    made.metadata.annotations = environment.annotations(allocation)
    made.spec.containers = [PodContainer(name, Resources(limits)) for name in ("main", "side")]
    assert [(each.resource, each.used) for each in only([made], []).resources] == [
        ("nvidia.com/gpu", 2),
        ("nvidia.com/gpumem", 80000),
        ("nvidia.com/gpumem-percentage", 200),
        ("nvidia.com/gpucores", 200),
    ]


def test_units_are_those_of_the_resource() -> None:
    """With a memory factor of 1024, usage and limit are in GiB, rounded up."""
    settings = AllocationSettings(memory_factor=1024)
    found = only([pod("a", memory=3073, gpumem="3")], [quota("q", gpumem="8")], settings=settings)
    assert found.resources[1] == ResourceUsage("nvidia.com/gpumem", 4, 8, "q", "ResourceQuota")


def test_namespaces_with_only_pods_or_only_limits_are_shown() -> None:
    """A namespace with neither is omitted; a pod whose cards are unknown counts separately."""
    assert only([], [quota("q", gpu="1")]).resources[0] == ResourceUsage("nvidia.com/gpu", 0, 1, "q", "ResourceQuota")
    assert only([pod("a")], []).resources[0] == ResourceUsage("nvidia.com/gpu", 1)
    assert count([], [quota("q")], AllocationSettings()).namespaces == ()
    lost = pod("a")
    lost.metadata.annotations = {}
    assert (only([lost], []).pods, only([lost], []).uncounted) == (0, 1)


@pytest.mark.apiserver
def test_a_viewer_sees_usage_that_kubernetes_does_not_count(team: Layout, gpu: Gpu) -> None:
    """`kubectl describe quota` shows no usage for the quota, `kubectl gpu top --namespaces` does."""
    kubectl.run(team, "apply", "-f", str(DEFINITION))
    kubectl.run(team, "wait", "--for=condition=Established", "crd/gpuquotas.gpu.scheduling")
    hard = {"limits.nvidia.com/gpumem": "8k"}
    client(team).apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpu", "namespace": "cli-team"},
            "spec": {"hard": hard},
        }
    )
    try:
        done = gpu("top", "--namespaces", "-n", "cli-team")
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line.split() for line in done.stdout.splitlines()]
        assert lines[0] == ["NAMESPACE", "PODS", "RESOURCE", "USED", "LIMIT", "QUOTA"]
        assert lines[2] == ["cli-team", "1", "nvidia.com/gpumem", "3000", "8000", "resourcequota/gpu"]
        namespaces = json.loads(gpu("top", "--namespaces", "-o", "json").stdout)["namespaces"]
        assert [each["pods"] for each in namespaces if each["name"] == "cli-team"] == [1]
        wrong = gpu("top", "--namespaces", "--watch")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    finally:
        client(team).delete("resourcequota", "gpu", namespace="cli-team")
