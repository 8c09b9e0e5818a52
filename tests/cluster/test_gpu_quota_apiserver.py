"""The GpuQuota kind on a real API server: defaults, values, rules, columns, its status, and who may write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.fairness.quota_spec import QuotaSpec, SingleQuota, TotalQuota
from cluster.gpu_quota import GpuQuota, GpuQuotaStatus
from lab import manifests, wait
from tests.cluster.support.stored import Stored
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
NAMESPACE = "quotas"
MEMORY = "nvidia.com/gpumem"


def quota(name: str = "team", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a GpuQuota."""
    head = {"apiVersion": "gpu.scheduling/v1", "kind": "GpuQuota"}
    return {**head, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


@pytest.fixture(scope="module")
def quotas(control_plane: Layout) -> Iterator[Stored]:
    """A cluster that knows the kind, and a namespace for quotas."""
    manifests.install(control_plane)
    namespaces.create(control_plane, NAMESPACE)
    stored = Stored(control_plane, "gpuquotas.gpu.scheduling", namespace=NAMESPACE)
    yield stored
    stored.api.delete("namespace", NAMESPACE, wait=False)


def test_defaults_are_those_of_the_product(quotas: Stored) -> None:
    """What the API server adds to an empty spec is what our code assumes of one."""
    stored = quotas.would_be(quota())
    assert stored["spec"] == {"total": {"alertThresholdPercent": 95}}
    assert msgspec.convert(stored, GpuQuota).spec == QuotaSpec()


def test_every_field_that_our_code_reads_is_stored(quotas: Stored) -> None:
    """The names of the fields are the same in the schema and in the code."""
    spec = {
        "total": {
            "limits": {"nvidia.com/gpu": 8, MEMORY: 0},
            "requests": {MEMORY: 5},
            "maxPods": 4,
            "alertThresholdPercent": 0,
        },
        "single": {"limits": {MEMORY: 20000}, "maxCards": 2, "defaults": {MEMORY: 20000, "nvidia.com/gpucores": 10}},
    }
    stored = quotas.would_be(quota(**spec))
    assert stored["spec"] == spec
    assert msgspec.convert(stored, GpuQuota).spec == msgspec.convert(spec, QuotaSpec)
    for part, kind in (("total", TotalQuota), ("single", SingleQuota)):
        assert set(spec[part]) == {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"total": {"limits": {MEMORY: -1}}}, "should be greater than or equal to 0"),
        ({"total": {"limits": {MEMORY: "8"}}}, f"spec.total.limits.{MEMORY}: Invalid value"),
        ({"total": {"maxPods": -1}}, "spec.total.maxPods: Invalid value"),
        ({"total": {"alertThresholdPercent": 101}}, "spec.total.alertThresholdPercent: Invalid value"),
        ({"single": {"maxCards": -1}}, "spec.single.maxCards: Invalid value"),
        ({"single": {"defaults": {MEMORY: -1}}}, "should be greater than or equal to 0"),
        ({"total": {"limits": {f"example.com/{n}": 1 for n in range(17)}}}, "spec.total.limits: Too many"),
        ({"single": {"limits": {f"example.com/{n}": 1 for n in range(17)}}}, "spec.single.limits: Too many"),
        ({"single": {"defaults": {f"example.com/{n}": 1 for n in range(17)}}}, "spec.single.defaults: Too many"),
        ({"limits": {MEMORY: 1}}, 'unknown field "spec.limits"'),
    ],
)
def test_invalid_specs_are_refused(quotas: Stored, spec: dict[str, Any], words: str) -> None:
    """The API server itself refuses them, in words."""
    assert words in quotas.refusal(quota(**spec))


def test_a_default_above_the_limit_of_one_pod_is_refused(quotas: Stored) -> None:
    """The error names the field; one at the limit, or of a resource without a limit, is accepted."""
    limits = {MEMORY: 20000}
    why = quotas.refusal(quota(single={"limits": limits, "defaults": {MEMORY: 20001}}))
    assert "spec.single.defaults: Invalid value" in why
    assert "a default must not be above the limit of the same resource in limits" in why
    for defaults in ({MEMORY: 20000}, {"nvidia.com/gpucores": 50}):
        stored = quotas.would_be(quota(single={"limits": limits, "defaults": defaults}))
        assert stored["spec"]["single"]["defaults"] == defaults


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"total": {"limits": {"nvidia.com/gpus": 4}}}, "nvidia.com/gpus has no effect: did you mean nvidia.com/gpu?"),
        ({"total": {"limits": {"nvidia.com/gpumemory": 4}}}, "did you mean nvidia.com/gpumem?"),
        ({"total": {"limits": {"cpu": 4}}}, "cpu has no effect: use a ResourceQuota"),
        ({"total": {"requests": {"nvidia.com/gpumemory": 4}}}, "did you mean nvidia.com/gpumem?"),
        ({"single": {"limits": {"nvidia.com/gpu": 4}}}, "use spec.single.maxCards"),
        (
            {"single": {"defaults": {"gpumem": 4}}},
            "gpumem has no effect: the resources that count are",
        ),
    ],
)
def test_limits_that_limit_nothing_are_warned_of(quotas: Stored, spec: dict[str, Any], words: str) -> None:
    """As soon as the API server has compiled the policy; a quota without a mistake has no warning."""
    wait.until(lambda: words in quotas.warning(quota(**spec)), what="a warning", timeout_s=PATIENCE_S)
    good = {
        "total": {"limits": {MEMORY: 4}, "requests": {MEMORY: 4}},
        "single": {"defaults": {"nvidia.com/gpumem-percentage": 5}},
    }
    assert quotas.warning(quota(**good)) == ""


def test_columns_and_status(quotas: Stored) -> None:
    """`kubectl get gquota` shows what is left; the status is a subresource, which a change of the spec leaves alone."""
    quotas.create(quota("shown", total={"maxPods": 10, "limits": {MEMORY: 1000}}))
    ready = {"type": "Ready", "status": "False", "reason": "AlertThresholdReached", "message": "little is left"}
    status = {
        "observedGeneration": 1,
        "used": {MEMORY: 960},
        "pods": 3,
        "availablePercent": {MEMORY: "4.00", "pods": "70.00"},
        "fullest": MEMORY,
        "conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    quotas.patch("shown", {"spec": {"total": {"maxPods": 11}}, "status": status}, subresource="status")
    head, row = quotas.listing("shown", kind="gquota")
    assert head[:6] == ["NAME", "PODS", "MAX-PODS", "FULLEST", "ALERT", "READY"]
    assert row[:6] == ["shown", "3", "10", MEMORY, "95", "False"]
    stored = msgspec.convert(quotas.get("shown"), GpuQuota)
    assert stored.status == msgspec.convert(status, GpuQuotaStatus)
    assert set(status) == {field.encode_name for field in msgspec.structs.fields(GpuQuotaStatus)}


@pytest.mark.parametrize("role", ["view", "edit", "admin", "tranche-viewer"])
def test_only_administrators_of_the_cluster_write_quotas(quotas: Stored, role: str) -> None:
    """Who administers a namespace reads its quotas, and writes none."""
    user = f"quota-{role}"
    quotas.grant(user, role)
    assert [verb for verb in ("get", "list", "watch") if not quotas.may(user, verb)] == []
    writes = ("create", "update", "patch", "delete", "deletecollection")
    assert [verb for verb in writes if quotas.may(user, verb)] == []
    assert not quotas.may(user, "patch", subresource="status")
