"""1.3 to 1.6: annotations, requests, admission and quotas."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.constraints import Constraints, read_constraints
from allocation.errors import InvalidFieldError
from allocation.quota import Headroom, Limit, exceeds_quota, limits
from allocation.request import ContainerRequest, read_request
from allocation.settings import AllocationSettings, ResourceNames, Weights
from scheduler.pod_spec.spec import PodSpec
from tests.allocation.support.builders import card, cards_of, container, mixed, put
from tests.allocation.support.builders import pod as request_of
from webhook.review import UnreadableReviewError
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
DEFAULTS = AllocationSettings()
GPU, MEMORY, PERCENT, CORES, _ = DEFAULTS.resources.gpu_resources()
PRIORITY = DEFAULTS.resources.priority


def spec(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> PodSpec:
    """Return the spec of a pod whose containers have these limits."""

    def named(prefix: str, some: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{at}", "resources": {"limits": limit}} for at, limit in enumerate(some)]

    return msgspec.convert({"containers": named("c", containers), "initContainers": named("i", init)}, PodSpec)


def requested(limit: dict[str, Any], settings: AllocationSettings = DEFAULTS) -> ContainerRequest:
    """Return the request of a container with this limit."""
    return read_request(spec(limit), settings).containers[0]


def read(key: str, value: str) -> Constraints:
    """Return the constraints of one annotation."""
    return read_constraints({key: value}, DEFAULTS)


def chosen(**annotations: str) -> list[int]:
    """Return which of four cards, two of each model, a pod with these annotations gets."""
    models = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
    ledger = mixed(*(card(index, model=model) for index, model in enumerate(models)))
    return cards_of(put(ledger, request_of(container(memory=100)), **annotations))


def environment_of(verdict: Any, at: int = 0) -> dict[str, str]:
    """Return the variables with constant values in a container's environment."""
    return {e["name"]: e["value"] for e in verdict.pod["spec"]["containers"][at].get("env", []) if "value" in e}


# ---- 1.3 annotations -----------------------------------------------------------------------------------------------


@pytest.mark.rule("1.3.1")
@pytest.mark.parametrize(
    ("annotations", "index"),
    [
        ({"use_uuids": " GPU-n0-2 ,,"}, 2),
        ({"avoid_uuids": "GPU-n0-0,GPU-n0-1"}, 2),
        ({"use_uuids": "GPU-n0-0,GPU-n0-3", "avoid_uuids": "GPU-n0-0"}, 3),
        ({"use_uuids": "", "avoid_uuids": " , "}, 0),
    ],
)
def test_uuids_select_cards(annotations: dict[str, str], index: int) -> None:
    """Used, avoided, both, or neither."""
    assert chosen(**annotations) == [index]


@pytest.mark.rule("1.3.2")
@pytest.mark.parametrize(("annotations", "index"), [({"use_types": "V100,h100"}, 2), ({"avoid_types": "a100"}, 2)])
def test_types_select_cards(annotations: dict[str, str], index: int) -> None:
    """They are parts of model names, in any case."""
    assert chosen(**annotations) == [index]


@pytest.mark.rule("1.3.3")
@pytest.mark.parametrize(("text", "bound"), [("true", True), ("1", True), ("t", True), ("0", False), ("", False)])
def test_numa_bind_is_a_go_boolean(text: str, bound: bool) -> None:  # noqa: FBT001 -- a column of the table
    """The values are those of Go."""
    assert read("nvidia.com/numa-bind", text).numa_bind is bound


@pytest.mark.rule("1.3.4")
@pytest.mark.parametrize("text", ["mig", "mig,hami-core", "hami-core;mig"])
def test_modes_can_be_listed_in_any_way(text: str) -> None:
    """The value has to contain the mode of the card."""
    constraints = read("nvidia.com/vgpu-mode", text)
    assert constraints.accepts_type("any", "mig")
    assert not constraints.accepts_type("any", "mps")


@pytest.mark.rule("1.3.3", "1.3.4", "1.3.5", "1.3.6", "1.3.7")
@pytest.mark.parametrize(
    ("key", "text", "valid"),
    [
        ("nvidia.com/numa-bind", "yes", "true or false"),
        ("nvidia.com/vgpu-mode", "shared", "hami-core, mig, mps"),
        ("hami.io/node-scheduler-policy", "pack", "binpack, spread"),
        ("hami.io/gpu-scheduler-policy", "pack", "binpack, spread, numa, mutex, topology-aware"),
        ("hami.io/gpu-scheduler-policy", "numa,numa", "each once"),
        ("hami.io/device-scoring-weights", "slot=1,core=1", "slot, core and memory"),
        ("hami.io/device-scoring-weights", "slot=0,core=0,memory=0", "at least 1"),
        ("hami.io/device-scoring-weights", "slot=1,core=-1,memory=1", "whole number"),
        ("hami.io/device-scoring-weights", f"slot={2**63},core=1,memory=1", "at most 9 digits"),
    ],
)
def test_an_unknown_value_is_rejected_with_the_valid_ones(
    admit: Make, pod: Make, key: str, text: str, valid: str
) -> None:
    """Admission rejects it, so that no pod is placed by an unexpected default."""
    sent = pod({"name": "main", "resources": {"limits": {GPU: "1"}}})
    sent["metadata"]["annotations"] = {key: text}
    verdict = admit(sent)
    assert not verdict.allowed
    assert valid in verdict.message
    assert text in verdict.message
    assert key in verdict.message


@pytest.mark.rule("1.3.5", "1.3.6", "1.3.7")
def test_policies_and_weights_are_read() -> None:
    """A word, an ordered list, three weights in any order; the settings are the default."""
    assert read("hami.io/node-scheduler-policy", "spread").node_policy == "spread"
    assert read("hami.io/gpu-scheduler-policy", "binpack, numa").card_policies == ("binpack", "numa")
    assert read("hami.io/device-scoring-weights", "memory=3, slot=0,core=1").weights == Weights(0, 1, 3)
    default = read("other", "x")
    assert (default.node_policy, default.card_policies, default.weights) == ("binpack", ("binpack",), Weights())


@pytest.mark.rule("1.3.8")
def test_constraints_apply_to_the_whole_pod() -> None:
    """Both containers get the card in the annotation."""
    two = request_of(container("a", memory=100), container("b", memory=100))
    outcome = put(mixed(card(0), card(1), card(2)), two, use_uuids="GPU-n0-2")
    assert (cards_of(outcome, "a"), cards_of(outcome, "b")) == ([2], [2])


@pytest.mark.rule("1.3.9")
def test_hamis_label_opts_a_pod_out(admit: Make, pod: Make, gpu: Make) -> None:
    """The pod is not changed."""
    sent = pod(gpu())
    sent["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert admit(sent).operations == []


# ---- 1.4 requests --------------------------------------------------------------------------------------------------


@pytest.mark.rule("1.4.1")
def test_a_container_without_gpu_resources_requests_no_gpu() -> None:
    """CPU is not a GPU resource."""
    assert requested({"cpu": "1"}).count == 0


@pytest.mark.rule("1.4.2")
@pytest.mark.parametrize(
    ("amount", "factor", "mib"),
    [
        ("3000", 1, 3000),
        ("3k", 1, 3000),
        (str(2**31 - 1), 1, 2**31 - 1),
        ("10", 1024, 10240),
        ("2097151", 1024, 2**31 - 1024),
    ],
)
def test_memory_is_a_multiple_of_the_factor(amount: str, factor: int, mib: int) -> None:
    """The product has at most 31 bits of MiB."""
    assert requested({GPU: "1", MEMORY: amount}, AllocationSettings(memory_factor=factor)).memory_mib == mib


@pytest.mark.rule("1.4.2", "1.4.3", "1.4.5", "1.4.9")
@pytest.mark.parametrize(
    ("name", "amount", "factor"),
    [
        (MEMORY, "10Gi", 1),
        (MEMORY, "1.5", 1),
        (MEMORY, "-1", 1),
        (MEMORY, str(2**31), 1),
        (MEMORY, str(2**32), 1),
        (MEMORY, str(2**63), 1),
        (MEMORY, "9" * 5000, 1),
        (MEMORY, "2097152", 1024),
        (PERCENT, "0", 1),
        (PERCENT, "101", 1),
        (CORES, "101", 1),
        (CORES, str(2**63), 1),
        (GPU, str(2**31), 1),
        (GPU, "1025", 1),
        (PRIORITY, "2", 1),
    ],
)
def test_an_invalid_request_is_an_error_with_its_field(name: str, amount: str, factor: int) -> None:
    """HAMi drops the whole request, clamps the value, or overflows."""
    with pytest.raises(InvalidFieldError) as refused:
        requested({GPU: "1", name: amount}, AllocationSettings(memory_factor=factor))
    assert name in refused.value.field


@pytest.mark.rule("1.4.3", "1.4.4", "1.4.5", "1.4.6")
@pytest.mark.parametrize(
    ("limit", "settings", "expected"),
    [
        ({GPU: 1}, {}, (None, 100, 1000)),
        ({GPU: 1}, {"default_memory_mib": 4000}, (4000, 0, 0)),
        ({GPU: 1}, {"default_memory_mib": 4000, "default_cores_percent": 20}, (4000, 0, 200)),
        ({GPU: 1, PERCENT: 50}, {}, (None, 50, 0)),
        ({GPU: 1, PERCENT: 100}, {}, (None, 100, 1000)),
        ({GPU: 1, MEMORY: 3000}, {}, (3000, 0, 0)),
        ({GPU: 1, MEMORY: 3000, CORES: 30}, {"default_cores_percent": 20}, (3000, 0, 300)),
        ({GPU: 1, MEMORY: 3000, PERCENT: 50}, {}, (3000, 0, 0)),
        ({GPU: 1, MEMORY: 0}, {}, (None, 100, 1000)),
    ],
)
def test_requests_are_derived_as_in_hami(
    limit: dict[str, int], settings: dict[str, int], expected: tuple[int | None, int, int]
) -> None:
    """The result is MiB, percent of the card's memory, and millicards."""
    request = requested(limit, AllocationSettings(**settings))  # type: ignore[arg-type]
    assert (request.memory_mib, request.memory_percent, request.cores) == expected


@pytest.mark.rule("1.4.7")
def test_limits_take_precedence_over_requests() -> None:
    """Requests count for resources without a limit."""
    both = {"limits": {GPU: "2"}, "requests": {GPU: "2", MEMORY: "500"}}
    made = msgspec.convert({"containers": [{"name": "c", "resources": both}]}, PodSpec)
    (request,) = read_request(made, DEFAULTS).containers
    assert (request.count, request.memory_mib) == (2, 500)


@pytest.mark.rule("1.4.8")
def test_resource_names_are_configurable() -> None:
    """The default names then have no meaning."""
    names = ResourceNames(count="example.com/vgpu", memory="example.com/vmem")
    settings = AllocationSettings(resources=names)
    request = requested({"example.com/vgpu": "1", "example.com/vmem": "7"}, settings)
    assert (request.count, request.memory_mib) == (1, 7)
    assert requested({GPU: "1"}, settings).count == 0


# ---- 1.5 admission -------------------------------------------------------------------------------------------------


@pytest.mark.rule("1.5.1")
def test_an_unreadable_review_is_an_error_and_a_pod_without_containers_is_rejected(admit: Make, pod: Make) -> None:
    """Without a review there is not even a UID to respond to."""
    with pytest.raises(UnreadableReviewError):
        admit(pod(), api_version="unknown/v9")
    assert "no containers" in admit(pod()).message


@pytest.mark.rule("1.5.2", "1.5.11")
@pytest.mark.parametrize(("name", "after"), [("", "tranche"), ("default-scheduler", "tranche"), ("other", "other")])
def test_only_pods_of_the_default_scheduler_are_taken_over(
    admit: Make, pod: Make, gpu: Make, name: str, after: str
) -> None:
    """A pod with another scheduler keeps it."""
    assert admit(pod(gpu(), schedulerName=name)).pod["spec"]["schedulerName"] == after


@pytest.mark.rule("1.5.3")
@pytest.mark.parametrize("percent", ["-1", "101"])
def test_a_percentage_out_of_range_is_rejected(admit: Make, pod: Make, percent: str) -> None:
    """The message names the field."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {GPU: "1", PERCENT: percent}}}))
    assert (verdict.allowed, PERCENT in verdict.message) == (False, True)


@pytest.mark.rule("1.5.4")
def test_the_priority_becomes_a_variable(admit: Make, pod: Make) -> None:
    """HAMi-core reads the variable; without the resource the user's own variable stays."""
    requesting = {"name": "main", "resources": {"limits": {GPU: "1", PRIORITY: "0"}}}
    assert environment_of(admit(pod(requesting)))["CUDA_TASK_PRIORITY"] == "0"
    own = {"name": "main", "resources": {"limits": {GPU: "1"}}, "env": [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]}
    assert environment_of(admit(pod(own)))["CUDA_TASK_PRIORITY"] == "1"
    verdict = admit(pod({**requesting, "env": own["env"]}))
    assert environment_of(verdict)["CUDA_TASK_PRIORITY"] == "0"
    assert admit(verdict.pod).operations == []


@pytest.mark.rule("1.5.5", "1.5.9")
def test_the_core_policy_is_set_in_gpu_containers_only(admit: Make, pod: Make, gpu: Make) -> None:
    """HAMi sets it in every container; a container without a GPU only must not see any GPU."""
    allocation = AllocationSettings(core_policy="force")
    verdict = admit(pod(gpu(), {"name": "log"}), allocation=allocation)
    assert environment_of(verdict) == {"GPU_CORE_UTILIZATION_POLICY": "force"}
    assert environment_of(verdict, 1) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    own = gpu(env=[{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"}])
    assert environment_of(admit(pod(own))) == {}


@pytest.mark.rule("1.5.6", "1.5.7")
@pytest.mark.parametrize(
    ("limit", "added"),
    [
        ({MEMORY: "3k"}, {GPU: "1"}),
        ({CORES: "30"}, {GPU: "1"}),
        ({GPU: "1"}, {CORES: "100"}),
        ({GPU: "1", PERCENT: "100"}, {CORES: "100"}),
        ({GPU: "1", PERCENT: "50"}, {}),
        ({GPU: "1", MEMORY: "3k"}, {}),
    ],
)
def test_derived_requests_are_written_to_the_pod(
    admit: Make, pod: Make, limit: dict[str, str], added: dict[str, str]
) -> None:
    """Everybody who reads the pod sees them."""
    after = admit(pod({"name": "main", "resources": {"limits": limit}})).pod["spec"]["containers"][0]["resources"]
    assert after["limits"] == {**limit, **added}


@pytest.mark.rule("1.5.8")
@pytest.mark.parametrize(("own", "after"), [(None, "nvidia"), ("kata", "kata")])
def test_the_configured_runtime_class_is_the_default(
    admit: Make, pod: Make, gpu: Make, own: str | None, after: str
) -> None:
    """A runtime class in the pod stays."""
    sent = pod(gpu(), **({"runtimeClassName": own} if own else {}))
    verdict = admit(sent, settings=WebhookSettings(runtime_class_name="nvidia"))
    assert verdict.pod["spec"]["runtimeClassName"] == after


@pytest.mark.rule("1.5.10", "1.5.11")
def test_rejections_have_hamis_words(admit: Make, pod: Make, gpu: Make) -> None:
    """Further text says how to fix the pod."""
    assert "container main is privileged" in admit(pod(gpu(securityContext={"privileged": True}))).message
    assert "pod has node assigned" in admit(pod(gpu(), nodeName="n1")).message


@pytest.mark.rule("1.5.13")
def test_unknown_fields_are_kept(admit: Make, pod: Make, gpu: Make) -> None:
    """HAMi responds with a whole typed pod, without the fields that its vendored API does not have."""
    sent = pod(gpu(futureField={"a": 1}), futureSpec=[1])
    after = admit(sent).pod["spec"]
    assert after["futureSpec"] == [1]
    assert after["containers"][0]["futureField"] == {"a": 1}


# ---- 1.6 quotas ----------------------------------------------------------------------------------------------------

BIG = {GPU: "2", MEMORY: "3k", CORES: "30"}


@pytest.mark.rule("1.5.12", "1.6.1", "1.6.2", "1.6.4")
@pytest.mark.parametrize(
    ("hard", "excess"),
    [
        ({"limits.nvidia.com/gpumem": "6000"}, ""),
        (
            {"limits.nvidia.com/gpumem": "5999"},
            "ResourceQuota q limits nvidia.com/gpumem to 5999: 6000 requested, which is too much even",
        ),
        (
            {"limits.nvidia.com/gpucores": "59"},
            "ResourceQuota q limits nvidia.com/gpucores to 59: 60 requested",
        ),
        ({"limits.nvidia.com/gpu": "1"}, "ResourceQuota q limits nvidia.com/gpu to 1: 2 requested"),
        ({"limits.nvidia.com/gpucores": "0"}, "nvidia.com/gpucores to 0: 60 requested"),
        ({"requests.nvidia.com/gpumem": "1"}, ""),
    ],
)
def test_a_pod_that_exceeds_its_quota_alone_is_rejected(
    admit: Make, pod: Make, hard: dict[str, str], excess: str
) -> None:
    """It is rejected at creation, because it would not fit even in an empty namespace."""
    verdict = admit(pod({"name": "main", "resources": {"limits": BIG}}), quotas={"q": hard})
    assert verdict.allowed is not bool(excess)
    assert excess in verdict.message
    assert ("exceeding resource quota" in verdict.message) is bool(excess)


@pytest.mark.rule("1.6.2")
def test_a_quota_counts_the_larger_of_init_and_app_containers() -> None:
    """A percentage counts as 0 at admission."""
    request = read_request(spec({GPU: 1, MEMORY: 300}, {GPU: 1, PERCENT: 90}, init=({GPU: 2, MEMORY: 200},)), DEFAULTS)
    enough, too_little = (limits({"q": {"limits.nvidia.com/gpumem": amount}}, DEFAULTS) for amount in ("400", "399"))
    assert exceeds_quota(request, enough) == ""
    assert "400 requested, and a percentage" not in exceeds_quota(request, too_little)
    assert "400 requested" in exceeds_quota(request, too_little)


@pytest.mark.rule("1.6.3", "1.6.4")
@pytest.mark.parametrize(("memory_mib", "fits"), [(500, True), (499, False), (0, False)])
def test_a_quota_counts_a_percentage_on_the_card_at_placement(memory_mib: int, fits: bool) -> None:  # noqa: FBT001
    """50 % of 1000 MiB are 500 MiB."""
    outcome = put(mixed(card(0)), request_of(container(percent=50)), headroom=Headroom(memory_mib=memory_mib))
    assert (str(getattr(outcome, "rejections", {}).get("n0", "")) == "1/1 ResourceQuotaNotFit") is not fits


@pytest.mark.rule("1.6.5")
def test_several_quotas_combine_by_their_minimum() -> None:
    """The smallest limit of each resource counts."""
    one, other = {"limits.nvidia.com/gpumem": "5"}, {"limits.nvidia.com/gpumem": "3", "limits.nvidia.com/gpu": "1"}
    memory, cores, cards, _ = limits({"one": one, "other": other}, DEFAULTS).limits
    assert (memory, cores) == (Limit("ResourceQuota", "other", "nvidia.com/gpumem", 3, 1), None)
    assert cards == Limit("ResourceQuota", "other", "nvidia.com/gpu", 1, 1)
    assert limits({"one": one}, DEFAULTS).memory_mib == 5


@pytest.mark.rule("1.6.6")
def test_the_memory_factor_applies_to_quotas() -> None:
    """3 units of 1024 MiB are 3072 MiB."""
    assert limits({"q": {"limits.nvidia.com/gpumem": "3"}}, AllocationSettings(memory_factor=1024)).memory_mib == 3072
