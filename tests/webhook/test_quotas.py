"""GpuQuotas at admission: what a pod gets that says nothing, and what no pod can have."""

import asyncio
import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from allocation.bindings.binding import AppIdentity
from allocation.bindings.granted import Granted
from allocation.bindings.grants import Grant
from allocation.claim import ClaimDevices, ClaimSpec
from allocation.fairness.quota_spec import QuotaSpec
from allocation.names import ALLOCATION, CLAIM, RESREQ
from allocation.settings import AllocationSettings
from cluster.gpu_quota import GpuQuota, NamespaceGpuQuotas, QuotaMeta
from tests.webhook.conftest import TRUSTED
from tests.webhook.support.claims import Claims
from webhook import cluster_quotas
from webhook.cluster_quotas import ClusterQuotas
from webhook.mutation_cache import MutationCache
from webhook.quotas import Quotas
from webhook.review import Pod
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
COUNT, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
PERCENT = "nvidia.com/gpumem-percentage"
WHOLE = ClaimSpec(ClaimDevices(2))
SLICE = ClaimSpec(ClaimDevices(2, "Shared", memory_mib=3000, cores=30))


def quota(total: Mapping[str, Any] | None = None, **single: Any) -> QuotaSpec:
    """Return the spec of a quota."""
    return msgspec.convert({"total": total or {}, "single": single}, QuotaSpec)


def container(name: str = "main", /, **limits: object) -> dict[str, Any]:
    """Return a container with limits by the part of their names after the slash, `_` for `-`."""
    named = {f"nvidia.com/{key.replace('_', '-')}": str(amount) for key, amount in limits.items()}
    return {"name": name, "resources": {"limits": named}}


def limits(pod: dict[str, Any], at: int = 0, kind: str = "containers") -> Any:
    """Return the limits of a container."""
    return pod["spec"][kind][at]["resources"]["limits"]


# ---- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("single", "at_maximum", "above", "what"),
    [
        (
            {"limits": {MEMORY: 4000}},
            {"gpu": 2, "gpumem": 4000},
            {"gpu": 1, "gpumem": 4001},
            f'spec.single.limits["{MEMORY}"] is 4000, and container main requests 4001 of each card',
        ),
        (
            {"limits": {CORES: 30}},
            {"gpu": 2, "gpumem": 10, "gpucores": 30},
            {"gpu": 1, "gpumem": 10, "gpucores": 31},
            f'spec.single.limits["{CORES}"] is 30, and container main requests 31 of each card',
        ),
        ({"maxCards": 2}, {"gpu": 2}, {"gpu": 3}, "spec.single.maxCards is 2, and the pod requests 3"),
    ],
)
def test_a_pod_has_at_most_what_one_pod_may_have(
    admit: Make, pod: Make, *, single: Any, at_maximum: Any, above: Any, what: str
) -> None:
    """The refusal names the quota, the field, both numbers, and what to do."""
    quotas = {"team": quota(**single)}
    assert admit(pod(container(**at_maximum)), gpu_quotas=quotas).allowed
    verdict = admit(pod(container(**above)), gpu_quotas=quotas)
    assert (verdict.allowed, verdict.code) == (False, 403)
    assert verdict.message == f"exceeding quota: GpuQuota team: {what}; request less, or have the quota raised"


@pytest.mark.parametrize(
    ("total", "at_maximum", "above", "what"),
    [
        ({"limits": {COUNT: 4}}, {"gpu": 4}, {"gpu": 5}, f"{COUNT} to 4: 5 requested"),
        (
            {"limits": {MEMORY: 8000}},
            {"gpu": 2, "gpumem": 4000},
            {"gpu": 2, "gpumem": 4001},
            f"{MEMORY} to 8000: 8002 requested",
        ),
        (
            {"limits": {CORES: 60}},
            {"gpu": 2, "gpumem": 1, "gpucores": 30},
            {"gpu": 2, "gpumem": 1, "gpucores": 31},
            f"{CORES} to 60: 62 requested",
        ),
        ({"limits": {COUNT: 0}}, {"gpu": 0}, {"gpu": 1}, f"{COUNT} to 0: 1 requested"),
        (
            {"limits": {MEMORY: 0, COUNT: 9}},
            {"gpu": 0},
            {"gpu": 1},
            f"{MEMORY} to 0: 0 requested, and a percentage of each card's memory",
        ),
    ],
)
def test_what_not_even_an_empty_namespace_could_have_is_refused(
    admit: Make, pod: Make, *, total: Any, at_maximum: Any, above: Any, what: str
) -> None:
    """Everything else waits until the other pods leave room for it."""
    quotas = {"team": quota(total)}
    assert admit(pod(container(**at_maximum)), gpu_quotas=quotas).allowed
    verdict = admit(pod(container(**above)), gpu_quotas=quotas)
    assert not verdict.allowed
    assert f"GpuQuota team limits {what}, which is too much even if no other pod uses any" in verdict.message


def test_the_smallest_limit_of_all_quotas_counts(admit: Make, pod: Make) -> None:
    """GpuQuotas and ResourceQuotas together; the message names the one that refuses."""
    gpu_quotas = {"a": quota({"limits": {COUNT: 5}}), "b": quota({"limits": {COUNT: 3}}, maxCards=4)}
    asked = pod(container(gpu=4))
    assert "GpuQuota b limits" in admit(asked, gpu_quotas=gpu_quotas).message
    both = admit(asked, gpu_quotas=gpu_quotas, quotas={"c": {f"limits.{COUNT}": "2"}})
    assert "ResourceQuota c limits" in both.message
    assert "GpuQuota b: spec.single.maxCards is 4" in admit(pod(container(gpu=5)), gpu_quotas=gpu_quotas).message


def test_a_namespace_for_no_pods_takes_none_with_a_gpu(admit: Make, pod: Make) -> None:
    """Other pods are not concerned; one pod is enough for every pod to be admitted and wait."""
    refused = admit(pod(container(gpu=1)), gpu_quotas={"team": quota({"maxPods": 0})})
    assert "GpuQuota team: spec.total.maxPods is 0" in refused.message
    assert admit(pod({"name": "main"}), gpu_quotas={"team": quota({"maxPods": 0})}).allowed
    assert admit(pod(container(gpu=1)), gpu_quotas={"team": quota({"maxPods": 1})}).allowed


# ---- defaults ------------------------------------------------------------------------------------------------------

DEFAULTS = {"team": quota(defaults={MEMORY: 2000, CORES: 20})}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"gpu": 1}, {COUNT: "1", MEMORY: "2000", CORES: "20"}),
        ({"gpu": 1, "gpumem": 500}, {COUNT: "1", MEMORY: "500", CORES: "20"}),
        ({"gpu": 1, "gpucores": 5}, {COUNT: "1", MEMORY: "2000", CORES: "5"}),
        ({"gpu": 1, "gpucores": 0}, {COUNT: "1", MEMORY: "2000", CORES: "0"}),
        ({"gpu": 1, "gpumem_percentage": 50}, {COUNT: "1", PERCENT: "50", CORES: "20"}),
        ({"gpu": 1, "gpumem": 500, "gpucores": 5}, {COUNT: "1", MEMORY: "500", CORES: "5"}),
        ({"gpucores": 5}, {COUNT: "1", MEMORY: "2000", CORES: "5"}),
    ],
)
def test_defaults_are_filled_in_where_a_container_says_nothing(
    admit: Make, pod: Make, stated: dict[str, int], expected: dict[str, str]
) -> None:
    """Before the defaults of the settings, and what the pod says stays (row 67 of the features)."""
    settings = AllocationSettings(default_memory_mib=9000, default_cores_percent=90)
    verdict = admit(pod(container(**stated)), gpu_quotas=DEFAULTS, allocation=settings)
    assert limits(verdict.pod) == expected
    assert not verdict.warnings


def test_the_settings_count_for_what_no_quota_says(admit: Make, pod: Make) -> None:
    """A quota may have a default for one of the two only, and a default of 0 for memory does not count."""
    settings = AllocationSettings(default_memory_mib=9000, default_cores_percent=90)
    only_cores = {"team": quota(defaults={CORES: 20, MEMORY: 0})}
    assert limits(admit(pod(container(gpu=1)), gpu_quotas=only_cores, allocation=settings).pod) == {
        COUNT: "1",
        MEMORY: "9000",
        CORES: "20",
    }


def test_each_gpu_container_gets_its_own_defaults_and_others_get_none(admit: Make, pod: Make) -> None:
    """Init containers, too; a container that declines GPUs stays without."""
    sent = pod(container("a", gpu=2), container("b", gpu=0), {"name": "c"}, init=(container("i", gpu=1),))
    changed = admit(sent, gpu_quotas=DEFAULTS).pod
    assert limits(changed) == {COUNT: "2", MEMORY: "2000", CORES: "20"}
    assert limits(changed, kind="initContainers") == {COUNT: "1", MEMORY: "2000", CORES: "20"}
    assert limits(changed, 1) == {COUNT: "0"}
    assert "resources" not in changed["spec"]["containers"][2]


def test_requests_follow_the_limits(admit: Make, pod: Make) -> None:
    """The API server wants both to be equal for extended resources."""
    sent = {"name": "main", "resources": {"limits": {COUNT: "1"}, "requests": {COUNT: "1"}}}
    resources = admit(pod(sent), gpu_quotas=DEFAULTS).pod["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"] == {COUNT: "1", MEMORY: "2000", CORES: "20"}


def test_a_filled_pod_stays_as_it_is(admit: Make, pod: Make) -> None:
    """The API server may ask again after another webhook, and quotas may have changed meanwhile."""
    once = admit(pod(container(gpu=1)), gpu_quotas=DEFAULTS)
    other = {"team": quota(defaults={MEMORY: 1, CORES: 1})}
    assert not admit(once.pod, gpu_quotas=other).operations


def test_a_default_counts_against_the_limits(admit: Make, pod: Make) -> None:
    """The limit of one quota holds for the default of another, and totals count what is filled in."""
    smaller = {**DEFAULTS, "z": quota(limits={MEMORY: 1000})}
    assert "GpuQuota z" in admit(pod(container(gpu=1)), gpu_quotas=smaller).message
    assert admit(pod(container(gpu=1, gpumem=1000)), gpu_quotas=smaller).allowed
    total = {**DEFAULTS, "z": quota({"limits": {MEMORY: 3999}})}
    assert "4000 requested" in admit(pod(container(gpu=2)), gpu_quotas=total).message


@pytest.mark.parametrize("defaults", [{CORES: 101}, {PERCENT: 101}, {MEMORY: 2**31}])
def test_an_impossible_default_is_named_in_the_refusal(admit: Make, pod: Make, defaults: dict[str, int]) -> None:
    """The author of the pod did not write it; pods that say it themselves are admitted."""
    verdict = admit(pod(container(gpu=1)), gpu_quotas={"team": quota(defaults=defaults)})
    assert (verdict.allowed, verdict.code) == (False, 403)
    (resource, amount), *_ = defaults.items()
    assert "spec.single.defaults of GpuQuota team is not valid: spec.containers[0]" in verdict.message
    assert resource in verdict.message
    assert str(amount) in verdict.message
    assert admit(pod(container(gpu=1, gpumem=1, gpucores=1)), gpu_quotas={"team": quota(defaults=defaults)}).allowed


# ---- pods of other origins -----------------------------------------------------------------------------------------


def test_a_requirement_in_one_line_is_filled_and_limited(admit: Make, pod: Make) -> None:
    """Once it is resources, it is a GPU pod like any other."""

    def requiring(gpus: int) -> Any:
        made = pod({"name": "main"})
        return {**made, "metadata": {**made["metadata"], "annotations": {RESREQ: f"cpu=1,gpu={gpus}"}}}

    quotas = {"team": quota(maxCards=2, defaults={MEMORY: 2000})}
    once = admit(requiring(2), gpu_quotas=quotas)
    assert limits(once.pod) == {COUNT: "2", MEMORY: "2000"}
    assert not admit(once.pod, gpu_quotas=quotas).operations
    assert "spec.single.maxCards is 2, and the pod requests 3" in admit(requiring(3), gpu_quotas=quotas).message


def test_a_claim_says_what_its_pod_gets_and_limits_hold(admit: Make, pod: Make) -> None:
    """Defaults would contradict the claim; each card counts once, however many containers share it."""
    claims = Claims({"whole": WHOLE, "slice": SLICE})

    def claiming(name: str) -> Any:
        made = pod(container("a", gpu=2), container("b", gpu=2))
        return {**made, "metadata": {**made["metadata"], "annotations": {CLAIM: name}}}

    two = {"team": quota(maxCards=2, limits={MEMORY: 3000, CORES: 30}, defaults={MEMORY: 1, CORES: 1})}
    sliced = admit(claiming("slice"), gpu_quotas=two, claims=claims)
    assert limits(sliced.pod) == {COUNT: "2", MEMORY: "3000", CORES: "30"}
    whole = admit(claiming("whole"), gpu_quotas=two, claims=claims)
    assert f'spec.single.limits["{CORES}"] is 30, and container a requests 100' in whole.message
    one = admit(claiming("slice"), gpu_quotas={"team": quota(maxCards=1)}, claims=claims)
    assert "spec.single.maxCards is 1, and the pod requests 2" in one.message


def test_a_static_allocation_is_not_refused(admit: Make, pod: Make) -> None:
    """A trusted identity has chosen the cards already; they count as used all the same."""
    share = [{"uuid": "GPU-a", "index": 0, "memoryMiB": 3000, "cores": 300}]
    made = pod(container(gpu=1))
    text = json.dumps({"v": 1, "node": "n1", "containers": {"main": share}})
    sent = {**made, "metadata": {**made["metadata"], "annotations": {ALLOCATION: text}}}
    nothing = {"team": quota({"maxPods": 0, "limits": {COUNT: 0}}, maxCards=0, limits={MEMORY: 0}, defaults={CORES: 1})}
    verdict = admit(sent, username=TRUSTED, gpu_quotas=nothing)
    assert verdict.allowed, verdict.message
    assert limits(verdict.pod) == {COUNT: "1", MEMORY: "3000", CORES: "30"}


def test_bound_memory_comes_before_defaults_and_counts(admit: Make, pod: Make) -> None:
    """What the GPUBindings set is the pod's request. Whether it may have that, the scheduler says, for each card."""

    class Bindings:
        def of_pod(self, _labels: Mapping[str, str], _namespace: str) -> Granted:
            return Granted(AppIdentity("app", "", "team"), (Grant("GPU-a", 5000, "b"),))

    quotas = {"team": quota(defaults={MEMORY: 2000, CORES: 20}, limits={MEMORY: 5000})}
    bound = admit(pod(container(gpu=1)), gpu_quotas=quotas, bindings=Bindings())
    assert limits(bound.pod) == {COUNT: "1", MEMORY: "5000", CORES: "20"}
    tighter = {"team": quota({"limits": {MEMORY: 1}}, limits={MEMORY: 4999}, maxCards=0)}
    assert admit(pod(container(gpu=1)), gpu_quotas=tighter, bindings=Bindings()).allowed
    assert "maxPods is 0" in admit(pod(container(gpu=1)), gpu_quotas={"q": quota({"maxPods": 0})}).message


TOTAL = f"limits {CORES}, and container main requests none, so nothing would limit it: request an amount"
SINGLE = f'spec.single.limits["{CORES}"] is 5, and container main requests none, so nothing would limit it'


@pytest.mark.parametrize(
    ("given", "requests", "what"),
    [
        ({"gpu_quotas": {"q": quota({"limits": {CORES: 500}})}}, {"gpumem": 1}, TOTAL),
        ({"gpu_quotas": {"q": quota({"limits": {CORES: 500}})}}, {"gpumem": 1, "gpucores": 0}, TOTAL),
        ({"quotas": {"q": {"limits.nvidia.com/gpucores": "500"}}}, {"gpumem": 1}, TOTAL),
        ({"gpu_quotas": {"q": quota(limits={CORES: 5})}}, {"gpumem_percentage": 1}, SINGLE),
    ],
)
def test_limited_amount_that_is_left_out_is_refused(
    admit: Make, pod: Make, given: dict[str, Any], requests: dict[str, Any], what: str
) -> None:
    """Nothing would limit the container in what the quota limits. A default fills it in; a whole card states all."""
    verdict = admit(pod(container(gpu=1, **requests)), **given)
    assert verdict.code == 403
    assert what in verdict.message
    more = {"default": quota(defaults={CORES: 5})}
    filled = admit(pod(container(gpu=1, gpumem=1)), **{**given, "gpu_quotas": given.get("gpu_quotas", {}) | more})
    assert filled.allowed
    assert admit(pod(container(gpu=1, gpumem=1, gpucores=5)), **given).allowed


def test_whole_card_states_its_amounts(admit: Make, pod: Make) -> None:
    """All its memory, and all its cores."""
    quotas = {"q": quota({"limits": {CORES: 100, MEMORY: 80_000}})}
    assert admit(pod(container(gpu=1)), gpu_quotas=quotas).allowed


@pytest.mark.parametrize(
    ("claim", "total", "is_refused"),
    [
        (ClaimDevices(1, "Shared"), {MEMORY: 5}, True),
        (ClaimDevices(1, "Shared", memory_mib=5), {MEMORY: 5}, False),
        (ClaimDevices(1, "Shared", memory_mib=5), {MEMORY: 5, CORES: 100}, True),
        (ClaimDevices(1, "Shared", memory_mib=5, cores=7), {MEMORY: 5, CORES: 100}, False),
        (ClaimDevices(1, "MIG"), {MEMORY: 5, CORES: 100}, False),
    ],
)
def test_claim_states_what_a_quota_limits(
    admit: Make, pod: Make, claim: ClaimDevices, total: dict[str, int], *, is_refused: bool
) -> None:
    """A shared claim without memory would give its pod all memory of a card; a MIG instance limits itself."""
    sent = pod({"name": "main"})
    sent["metadata"]["annotations"] = {CLAIM: "c"}
    for quotas in ({"q": quota({"limits": total})}, {"q": quota(limits=total)}):
        verdict = admit(sent, gpu_quotas=quotas, claims=Claims({"c": ClaimSpec(claim)}))
        assert ("requests none, so nothing would limit it" in verdict.message) is is_refused


def test_a_pod_that_opts_out_is_left_alone(admit: Make, pod: Make) -> None:
    """As without quotas."""
    made = pod(container(gpu=9))
    sent = {**made, "metadata": {**made["metadata"], "labels": {"gpu.scheduling/injection": "disabled"}}}
    verdict = admit(sent, gpu_quotas={"team": quota(maxCards=1, defaults={MEMORY: 1})})
    assert verdict.allowed
    assert not verdict.operations


# ---- the local copy ------------------------------------------------------------------------------------------------


def test_quotas_are_found_by_namespace() -> None:
    """A new and a changed one, beside another of the same name elsewhere, until it is deleted."""
    cluster = ClusterQuotas(None)  # type: ignore[arg-type]  # the copies are filled here
    ours, theirs = (GpuQuota(QuotaMeta(name="q", namespace=name), quota(maxCards=1)) for name in ("team", "other"))
    changed = GpuQuota(QuotaMeta(name="q", namespace="team", uid="2", resource_version="2"), quota(maxCards=2))
    for each in (ours, theirs, changed):
        cluster.gpu_quotas.add_if_new(each)
    assert cluster.of_namespace("team") == Quotas({}, {"q": quota(maxCards=2)})
    assert cluster.of_namespace("other") == Quotas({}, {"q": quota(maxCards=1)})
    assert cluster.of_namespace("third") == Quotas()
    table = NamespaceGpuQuotas()
    for each in (ours, theirs):
        table.set(each)
    table.drop(ours)
    assert (table.specs("team"), table.specs("other")) == ({}, {"q": quota(maxCards=1)})


async def test_readiness_waits_for_the_quotas_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster may not serve GpuQuotas at all."""
    cluster = ClusterQuotas(None)  # type: ignore[arg-type]  # nothing is read here
    monkeypatch.setattr(cluster_quotas, "_LIST_SECONDS", 0.01)
    await cluster.listed()
    assert "the GpuQuotas are not known yet" in caplog.text
    monkeypatch.setattr(cluster_quotas, "_LIST_SECONDS", 60.0)
    listed = asyncio.create_task(cluster.listed())
    await asyncio.sleep(0)
    assert not listed.done()
    cluster.gpu_quotas.synced.set()
    await listed
    assert caplog.text.count("the GpuQuotas are not known yet") == 1


def test_a_changed_quota_changes_the_next_pod(pod: Make) -> None:
    """A cached decision never outlives the quotas that it was made for."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    sent = msgspec.convert(pod(container(gpu=1)), Pod)

    def patched(quotas: Quotas) -> bytes:
        return bytes(cache.get(sent, username="", quotas=quotas, claim=None).patch)

    patches = [
        patched(Quotas(gpu_quotas={"q": quota(defaults={MEMORY: amount})} if amount else {}))
        for amount in (0, 1000, 2000, 0, 1000)
    ]
    assert all(left != right for left, right in pairwise(patches))
    assert patches[:2] == patches[3:]
