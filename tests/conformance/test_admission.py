"""1.3 to 1.6: what a user may write, and what admission makes of it."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.constraints import Constraints, read_constraints
from allocation.errors import InvalidFieldError
from allocation.quota import Room, certain_excess, limits
from allocation.request import ContainerRequest, read_request
from allocation.settings import AllocationSettings, ResourceNames, Weights
from scheduler.objects import PodSpec
from tests.allocation.builders import card, cards_of, container, mixed, put
from tests.allocation.builders import pod as request_of
from webhook.review import UnreadableReviewError
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
DEFAULTS = AllocationSettings()
GPU, MEMORY, PERCENT, CORES = DEFAULTS.resources.asking()
PRIORITY = DEFAULTS.resources.priority


def spec(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> PodSpec:
    """Answer the spec of a pod with containers of these limits."""

    def named(prefix: str, some: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{at}", "resources": {"limits": limit}} for at, limit in enumerate(some)]

    return msgspec.convert({"containers": named("c", containers), "initContainers": named("i", init)}, PodSpec)


def asked(limit: dict[str, Any], settings: AllocationSettings = DEFAULTS) -> ContainerRequest:
    """Answer what a container with this limit asks for."""
    return read_request(spec(limit), settings).containers[0]


def read(key: str, value: str) -> Constraints:
    """Answer what one annotation demands."""
    return read_constraints({key: value}, DEFAULTS)


def chosen(**annotations: str) -> list[int]:
    """Answer which of four cards, two models of two, a pod of one card with these annotations gets."""
    models = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
    ledger = mixed(*(card(index, model=model) for index, model in enumerate(models)))
    return cards_of(put(ledger, request_of(container(memory=100)), **annotations))


def environment_of(verdict: Any, at: int = 0) -> dict[str, str]:
    """Answer the constants in a container's environment."""
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
def test_uuids(annotations: dict[str, str], index: int) -> None:
    """Use, avoid, both, neither."""
    assert chosen(**annotations) == [index]


@pytest.mark.rule("1.3.2")
@pytest.mark.parametrize(("annotations", "index"), [({"use_types": "V100,h100"}, 2), ({"avoid_types": "a100"}, 2)])
def test_types(annotations: dict[str, str], index: int) -> None:
    """Parts of names."""
    assert chosen(**annotations) == [index]


@pytest.mark.rule("1.3.3")
@pytest.mark.parametrize(("text", "bound"), [("true", True), ("1", True), ("t", True), ("0", False), ("", False)])
def test_numa_bind(text: str, bound: bool) -> None:  # noqa: FBT001 -- a column of the table
    """Go's words."""
    assert read("nvidia.com/numa-bind", text).numa_bind is bound


@pytest.mark.rule("1.3.4")
@pytest.mark.parametrize("text", ["mig", "mig,hami-core", "hami-core;mig"])
def test_mode(text: str) -> None:
    """However it is listed."""
    constraints = read("nvidia.com/vgpu-mode", text)
    assert constraints.accepts_type("any", "mig")
    assert not constraints.accepts_type("any", "mps")


@pytest.mark.rule("1.3.3", "1.3.4", "1.3.5", "1.3.6", "1.3.7")
@pytest.mark.parametrize(
    ("key", "text", "known"),
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
def test_an_unknown_word_is_refused_with_the_known_ones(
    admit: Make, pod: Make, key: str, text: str, known: str
) -> None:
    """At admission, before anything waits for a default that nobody chose."""
    sent = pod({"name": "main", "resources": {"limits": {GPU: "1"}}})
    sent["metadata"]["annotations"] = {key: text}
    verdict = admit(sent)
    assert not verdict.allowed
    assert known in verdict.message
    assert text in verdict.message
    assert key in verdict.message


@pytest.mark.rule("1.3.5", "1.3.6", "1.3.7")
def test_policies_and_weights() -> None:
    """One word, an ordered list, three weights in any order; nothing said is the administrator's choice."""
    assert read("hami.io/node-scheduler-policy", "spread").node_policy == "spread"
    assert read("hami.io/gpu-scheduler-policy", "binpack, numa").card_policies == ("binpack", "numa")
    assert read("hami.io/device-scoring-weights", "memory=3, slot=0,core=1").weights == Weights(0, 1, 3)
    nothing = read("other", "x")
    assert (nothing.node_policy, nothing.card_policies, nothing.weights) == ("binpack", ("spread",), Weights())


@pytest.mark.rule("1.3.8")
def test_constraints_are_the_whole_pods() -> None:
    """Both containers go where the annotation says."""
    two = request_of(container("a", memory=100), container("b", memory=100))
    outcome = put(mixed(card(0), card(1), card(2)), two, use_uuids="GPU-n0-2")
    assert (cards_of(outcome, "a"), cards_of(outcome, "b")) == ([2], [2])


@pytest.mark.rule("1.3.9")
def test_hamis_label_opts_a_pod_out(admit: Make, pod: Make, gpu: Make) -> None:
    """Nothing of it is changed."""
    sent = pod(gpu())
    sent["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    assert admit(sent).operations == []


# ---- 1.4 requests --------------------------------------------------------------------------------------------------


@pytest.mark.rule("1.4.1")
def test_nothing_asked_is_no_gpu() -> None:
    """CPU does not matter here."""
    assert asked({"cpu": "1"}).count == 0


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
def test_memory(amount: str, factor: int, mib: int) -> None:
    """Units of the factor, up to 31 bits of MiB."""
    assert asked({GPU: "1", MEMORY: amount}, AllocationSettings(memory_factor=factor)).memory_mib == mib


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
def test_what_no_request_can_be_is_refused(name: str, amount: str, factor: int) -> None:
    """HAMi drops the whole request, clamps, or overflows; here field and value are named."""
    with pytest.raises(InvalidFieldError) as refused:
        asked({GPU: "1", name: amount}, AllocationSettings(memory_factor=factor))
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
def test_derivation(limit: dict[str, int], settings: dict[str, int], expected: tuple[int | None, int, int]) -> None:
    """MiB, percent of the card's memory, millicards."""
    request = asked(limit, AllocationSettings(**settings))  # type: ignore[arg-type]
    assert (request.memory_mib, request.memory_percent, request.cores) == expected


@pytest.mark.rule("1.4.7")
def test_limits_come_before_requests() -> None:
    """And requests count where there is no limit."""
    both = {"limits": {GPU: "2"}, "requests": {GPU: "2", MEMORY: "500"}}
    made = msgspec.convert({"containers": [{"name": "c", "resources": both}]}, PodSpec)
    (request,) = read_request(made, DEFAULTS).containers
    assert (request.count, request.memory_mib) == (2, 500)


@pytest.mark.rule("1.4.8")
def test_resource_names_are_configurable() -> None:
    """The default names then mean nothing."""
    names = ResourceNames(count="example.com/vgpu", memory="example.com/vmem")
    settings = AllocationSettings(resources=names)
    request = asked({"example.com/vgpu": "1", "example.com/vmem": "7"}, settings)
    assert (request.count, request.memory_mib) == (1, 7)
    assert asked({GPU: "1"}, settings).count == 0


# ---- 1.5 admission -------------------------------------------------------------------------------------------------


@pytest.mark.rule("1.5.1")
def test_unreadable_and_empty(admit: Make, pod: Make) -> None:
    """A review without a uid cannot be answered under one; a pod without containers can."""
    with pytest.raises(UnreadableReviewError):
        admit(pod(), api_version="unknown/v9")
    assert "no containers" in admit(pod()).message


@pytest.mark.rule("1.5.2", "1.5.11")
@pytest.mark.parametrize(("name", "after"), [("", "tranche"), ("default-scheduler", "tranche"), ("other", "other")])
def test_routing(admit: Make, pod: Make, gpu: Make, name: str, after: str) -> None:
    """Ours, or nobody's."""
    assert admit(pod(gpu(), schedulerName=name)).pod["spec"]["schedulerName"] == after


@pytest.mark.rule("1.5.3")
@pytest.mark.parametrize("percent", ["-1", "101"])
def test_percentages_out_of_range(admit: Make, pod: Make, percent: str) -> None:
    """The pod is refused with the field."""
    verdict = admit(pod({"name": "main", "resources": {"limits": {GPU: "1", PERCENT: percent}}}))
    assert (verdict.allowed, PERCENT in verdict.message) == (False, True)


@pytest.mark.rule("1.5.4")
def test_priority(admit: Make, pod: Make) -> None:
    """The resource says it, HAMi-core reads the variable; who says nothing keeps the user's own."""
    asking = {"name": "main", "resources": {"limits": {GPU: "1", PRIORITY: "0"}}}
    assert environment_of(admit(pod(asking)))["CUDA_TASK_PRIORITY"] == "0"
    own = {"name": "main", "resources": {"limits": {GPU: "1"}}, "env": [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]}
    assert environment_of(admit(pod(own)))["CUDA_TASK_PRIORITY"] == "1"
    verdict = admit(pod({**asking, "env": own["env"]}))
    assert environment_of(verdict)["CUDA_TASK_PRIORITY"] == "0"
    assert admit(verdict.pod).operations == []


@pytest.mark.rule("1.5.5", "1.5.9")
def test_core_policy_and_blindness(admit: Make, pod: Make, gpu: Make) -> None:
    """HAMi writes the policy into every container; one without GPU has only to see none."""
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
def test_what_is_derived_stands_in_the_pod(
    admit: Make, pod: Make, limit: dict[str, str], added: dict[str, str]
) -> None:
    """For everybody to read."""
    after = admit(pod({"name": "main", "resources": {"limits": limit}})).pod["spec"]["containers"][0]["resources"]
    assert after["limits"] == {**limit, **added}


@pytest.mark.rule("1.5.8")
@pytest.mark.parametrize(("own", "after"), [(None, "nvidia"), ("kata", "kata")])
def test_runtime_class(admit: Make, pod: Make, gpu: Make, own: str | None, after: str) -> None:
    """A user's own stays."""
    sent = pod(gpu(), **({"runtimeClassName": own} if own else {}))
    verdict = admit(sent, settings=WebhookSettings(runtime_class_name="nvidia"))
    assert verdict.pod["spec"]["runtimeClassName"] == after


@pytest.mark.rule("1.5.10", "1.5.11")
def test_refusals_in_hamis_words(admit: Make, pod: Make, gpu: Make) -> None:
    """Followed by the way out."""
    assert "container main is privileged" in admit(pod(gpu(securityContext={"privileged": True}))).message
    assert "pod has node assigned" in admit(pod(gpu(), nodeName="n1")).message


@pytest.mark.rule("1.5.13")
def test_unknown_fields_survive(admit: Make, pod: Make, gpu: Make) -> None:
    """HAMi's answer is a whole typed pod and drops what its vendored API does not know."""
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
            "takes 6000 of nvidia.com/gpumem, and ResourceQuota q limits its namespace to 5999",
        ),
        ({"limits.nvidia.com/gpucores": "59"}, "takes 60 of nvidia.com/gpucores"),
        ({"limits.nvidia.com/gpu": "1"}, "takes 2 of nvidia.com/gpu,"),
        ({"limits.nvidia.com/gpucores": "0"}, "takes 60 of nvidia.com/gpucores"),
        ({"requests.nvidia.com/gpumem": "1"}, ""),
    ],
)
def test_a_pod_that_no_room_would_be_enough_for(admit: Make, pod: Make, hard: dict[str, str], excess: str) -> None:
    """Refused at creation: nothing that ends could make it fit."""
    verdict = admit(pod({"name": "main", "resources": {"limits": BIG}}), quotas={"q": hard})
    assert verdict.allowed is not bool(excess)
    assert excess in verdict.message
    assert ("exceeding resource quota" in verdict.message) is bool(excess)


@pytest.mark.rule("1.6.2")
def test_init_steps_stand_beside_app_containers() -> None:
    """The larger of both; a percentage is nothing yet."""
    request = read_request(spec({GPU: 1, MEMORY: 300}, {GPU: 1, PERCENT: 90}, init=({GPU: 2, MEMORY: 200},)), DEFAULTS)
    assert certain_excess(request, {"q": {"limits.nvidia.com/gpumem": "400"}}, DEFAULTS) == ""
    assert "takes 400 " in certain_excess(request, {"q": {"limits.nvidia.com/gpumem": "399"}}, DEFAULTS)


@pytest.mark.rule("1.6.3", "1.6.4")
@pytest.mark.parametrize(("memory_mib", "fits"), [(500, True), (499, False), (0, False)])
def test_at_placement_a_percentage_is_what_it_is_on_the_card(memory_mib: int, fits: bool) -> None:  # noqa: FBT001
    """50 % of 1000 MiB."""
    outcome = put(mixed(card(0)), request_of(container(percent=50)), room=Room(memory_mib=memory_mib))
    assert (str(getattr(outcome, "rejections", {}).get("n0", "")) == "1/1 ResourceQuotaNotFit") is not fits


@pytest.mark.rule("1.6.5")
def test_several_quotas_combine() -> None:
    """The smallest of each resource."""
    hards = ({"limits.nvidia.com/gpumem": "5"}, {"limits.nvidia.com/gpumem": "3", "limits.nvidia.com/gpu": "1"})
    assert limits(hards, DEFAULTS) == Room(memory_mib=3, cards=1)
    assert limits(hards[:1], DEFAULTS) == Room(memory_mib=5)


@pytest.mark.rule("1.6.6")
def test_the_factor_counts_in_limits() -> None:
    """3 units of 1024 MiB."""
    assert limits(({"limits.nvidia.com/gpumem": "3"},), AllocationSettings(memory_factor=1024)).memory_mib == 3072
