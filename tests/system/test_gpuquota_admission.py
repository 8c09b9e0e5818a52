"""GpuQuotas at admission, on a real API server with the real webhook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from allocation.names import ALLOCATION
from allocation.wire import record
from lab import wait
from lab.errors import LabError
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support.gpubindings import placed
from tests.system.support.gpuquotas import delete_quota, set_quota

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.apiserver

COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"


def resources(namespace: Namespace, manifest: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the resources of a pod as it would be created."""
    text = namespace.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(manifest))
    found: dict[str, dict[str, str]] = json.loads(text)["spec"]["containers"][0]["resources"]
    return found


def limits(namespace: Namespace, **requested: int) -> dict[str, str]:
    """Return the limits of a pod that requests these, as it would be created."""
    return resources(namespace, pod("dry", **requested))["limits"]


def refusal(namespace: Namespace, **requested: int) -> str:
    """Return why a pod that requests these would be refused; an empty string if it would be admitted."""
    try:
        limits(namespace, **requested)
    except LabError as error:
        return error.why
    return ""


def await_refusal(namespace: Namespace, text: str, **requested: int) -> None:
    """Wait until the webhook refuses a pod that requests these with this message."""
    wait.until(lambda: text in refusal(namespace, **requested), what=f"the refusal {text!r}", timeout_s=PATIENCE_S)


def await_limits(namespace: Namespace, expected: dict[str, str], **requested: int) -> None:
    """Wait until the webhook gives a pod that requests these the expected limits."""
    wait.until(lambda: limits(namespace, **requested) == expected, what=f"the limits {expected}", timeout_s=PATIENCE_S)


def test_defaults_are_filled_in_and_what_a_pod_says_is_kept(namespace: Namespace) -> None:
    """In limits and requests; the scheduler places what was filled in (row 67 of the features)."""
    set_quota(namespace, "team", single={"defaults": {MEMORY: 2000, CORES: 20}})
    await_limits(namespace, {COUNT: "1", MEMORY: "2k", CORES: "20"}, gpu=1)
    assert limits(namespace, gpu=2, gpumem=500) == {COUNT: "2", MEMORY: "500", CORES: "20"}
    assert limits(namespace, gpu=1, gpucores=5) == {COUNT: "1", MEMORY: "2k", CORES: "5"}
    assert limits(namespace, gpu=1, percentage=50)[CORES] == "20"
    assert MEMORY not in limits(namespace, gpu=1, percentage=50)
    assert limits(namespace, gpu=1, gpumem=500, gpucores=0) == {COUNT: "1", MEMORY: "500", CORES: "0"}
    namespace.create(pod("filled", gpu=1))
    found = placed(namespace, "filled")
    stated = found["spec"]["containers"][0]["resources"]
    assert stated["limits"] == stated["requests"] == {COUNT: "1", MEMORY: "2k", CORES: "20"}
    (share,) = record.decode(found["metadata"]["annotations"][ALLOCATION]).containers["main"]
    assert (share.memory_mib, share.cores) == (2000, 200)


@pytest.mark.parametrize(
    ("spec", "at_maximum", "above", "message"),
    [
        (
            {"single": {"limits": {MEMORY: 4000}}},
            {"gpu": 2, "gpumem": 4000},
            {"gpu": 2, "gpumem": 4001},
            f'spec.single.limits["{MEMORY}"] is 4000, and container main requests 4001 of each card',
        ),
        (
            {"single": {"limits": {CORES: 30}}},
            {"gpu": 2, "gpumem": 100, "gpucores": 30},
            {"gpu": 2, "gpumem": 100, "gpucores": 31},
            f'spec.single.limits["{CORES}"] is 30, and container main requests 31 of each card',
        ),
        (
            {"single": {"maxCards": 2}},
            {"gpu": 2, "gpumem": 100},
            {"gpu": 3, "gpumem": 100},
            "spec.single.maxCards is 2, and the pod requests 3",
        ),
        (
            {"total": {"limits": {MEMORY: 8000}}},
            {"gpu": 2, "gpumem": 4000},
            {"gpu": 2, "gpumem": 4001},
            f"limits {MEMORY} to 8000: 8002 requested",
        ),
        (
            {"total": {"limits": {COUNT: 2}}},
            {"gpu": 2, "gpumem": 100},
            {"gpu": 3, "gpumem": 100},
            f"limits {COUNT} to 2: 3 requested",
        ),
        ({"total": {"limits": {COUNT: 0}}}, {"gpu": 0}, {"gpu": 1}, f"limits {COUNT} to 0: 1 requested"),
        ({"total": {"maxPods": 0}}, {"gpu": 0}, {"gpu": 1}, "spec.total.maxPods is 0"),
    ],
)
def test_the_maximum_is_admitted_and_one_more_is_refused(
    namespace: Namespace, *, spec: dict[str, Any], at_maximum: dict[str, int], above: dict[str, int], message: str
) -> None:
    """Each field; the message names the quota, and what to do (row 63 of the features)."""
    set_quota(namespace, "team", **spec)
    await_refusal(namespace, message, **above)
    assert "GpuQuota team" in refusal(namespace, **above)
    assert "have the quota raised" in refusal(namespace, **above)
    assert refusal(namespace, **at_maximum) == ""


def test_a_quota_that_is_created_or_changed_later_counts_from_the_next_pod(
    namespace: Namespace, make_namespace: Callable[..., Namespace]
) -> None:
    """Pods that run stay, other namespaces are not concerned, and a deleted quota limits nothing."""
    namespace.create(pod("before", gpu=2, gpumem=100))
    placed(namespace, "before")
    set_quota(namespace, "team", single={"maxCards": 1})
    await_refusal(namespace, "spec.single.maxCards is 1, and the pod requests 2", gpu=2, gpumem=100)
    assert refusal(make_namespace(), gpu=2, gpumem=100) == ""
    before = namespace.pod("before")
    assert before["spec"]["nodeName"]
    assert not before["metadata"].get("deletionTimestamp")
    set_quota(namespace, "team", single={"maxCards": 2, "defaults": {MEMORY: 2000}})
    wait.until(lambda: not refusal(namespace, gpu=2), what="the changed quota", timeout_s=PATIENCE_S)
    assert limits(namespace, gpu=2) == {COUNT: "2", MEMORY: "2k"}
    delete_quota(namespace, "team")
    wait.until(lambda: MEMORY not in limits(namespace, gpu=1), what="no default", timeout_s=PATIENCE_S)


def test_all_quotas_of_a_namespace_hold(namespace: Namespace) -> None:
    """The smallest default of each resource, and each limit by the name of its quota."""
    set_quota(namespace, "a", single={"maxCards": 2, "defaults": {MEMORY: 3000, CORES: 10}})
    set_quota(namespace, "b", single={"limits": {MEMORY: 4000}, "defaults": {MEMORY: 2000, CORES: 20}})
    await_limits(namespace, {COUNT: "1", MEMORY: "2k", CORES: "10"}, gpu=1)
    assert "GpuQuota a: spec.single.maxCards is 2" in refusal(namespace, gpu=3)
    assert "GpuQuota b: spec.single.limits" in refusal(namespace, gpu=1, gpumem=4001)
    delete_quota(namespace, "b")
    await_limits(namespace, {COUNT: "1", MEMORY: "3k", CORES: "10"}, gpu=1)
    assert refusal(namespace, gpu=1, gpumem=4001) == ""
