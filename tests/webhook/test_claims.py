"""GpuClaims: what admission writes into a pod that names one."""

import copy
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.claim import ClaimDevices, ClaimSpec, read_request
from allocation.request import read_request as read_pod_request
from allocation.settings import AllocationSettings
from tests.webhook.support.claims import (
    CLAIM,
    CLAIMS,
    CORES,
    COUNT,
    DEFAULT_CONTAINER,
    EXCLUSIVE,
    MEMORY,
    PERCENT,
    SPECS,
    Claims,
    claims,
    container,
    limits,
)
from webhook.review import decode_pod
from webhook.settings import WebhookSettings

Make = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exclusive", EXCLUSIVE),
        ("four", {**EXCLUSIVE, COUNT: "4"}),
        ("shared", {COUNT: "1", MEMORY: "3000", CORES: "30"}),
        ("slot", {COUNT: "1"}),
        ("mig", {COUNT: "2"}),
    ],
)
def test_gpu_container_gets_what_the_claim_gives(admit: Make, pod: Make, name: str, expected: dict[str, str]) -> None:
    """Whether it states the number of cards or nothing; only a claim's amounts are written, never defaults."""
    stated = container(gpu=expected[COUNT])
    for sent in (pod({"name": "main"}), pod({"name": "main", "resources": {}}), pod(stated)):
        verdict = admit(claims(sent, name), claims=CLAIMS)
        assert limits(verdict.pod) == expected
        assert verdict.pod["spec"]["schedulerName"] == "tranche"
        assert not verdict.warnings
        variables = [entry["name"] for entry in verdict.pod["spec"]["containers"][0]["env"]]
        assert f"CUDA_DEVICE_MEMORY_LIMIT_{int(expected[COUNT]) - 1}" in variables


def test_memory_is_written_in_units_of_the_resource(admit: Make, pod: Make) -> None:
    """A claim states MiB; an amount that is not a multiple of the unit is refused."""
    settings = AllocationSettings(memory_factor=1024)
    specs = {"two": ClaimSpec(ClaimDevices(1, "Shared", memory_mib=2048)), **SPECS}
    verdict = admit(claims(pod({"name": "main"}), "two"), claims=Claims(specs), allocation=settings)
    assert limits(verdict.pod)[MEMORY] == "2"
    verdict = admit(claims(pod({"name": "main"}), "shared"), claims=Claims(specs), allocation=settings)
    assert verdict.message.startswith("spec.devices.memoryMiB of the GpuClaim holds '3000': it must be a multiple")


def test_defaults_do_not_fill_what_a_claim_leaves_out(admit: Make, pod: Make) -> None:
    """A claim that limits no memory takes precedence over the administrator's defaults, which apply without a claim."""
    settings = AllocationSettings(default_memory_mib=2000, default_cores_percent=20)
    sent = pod(container(gpu="1"))
    assert limits(admit(claims(sent, "slot"), claims=CLAIMS, allocation=settings).pod) == {COUNT: "1"}
    assert limits(admit(sent, allocation=settings).pod) == {COUNT: "1", MEMORY: "2000", CORES: "20"}


def test_requests_are_completed_like_limits(admit: Make, pod: Make) -> None:
    """The API server requires that they are equal."""
    sent = {"name": "main", "resources": {"limits": {COUNT: "1"}, "requests": {COUNT: "1"}}}
    made = admit(claims(pod(sent)), claims=CLAIMS).pod["spec"]["containers"][0]["resources"]
    assert made == {"limits": EXCLUSIVE, "requests": EXCLUSIVE}


def test_several_gpu_containers_get_the_same(admit: Make, pod: Make) -> None:
    """Each container that requests a GPU gets the cards: init containers and sidecars, too; the others see none."""
    sidecar = {**container("side", gpu="4"), "restartPolicy": "Always"}
    sent = pod(container("a", gpu="4"), {"name": "b"}, container("c", gpucores="100"), init=(sidecar, {"name": "i"}))
    verdict = admit(claims(sent, "four"), claims=CLAIMS)
    four = {**EXCLUSIVE, COUNT: "4"}
    assert [limits(verdict.pod, position) for position in range(3)] == [four, {}, four]
    assert [limits(verdict.pod, position, kind="initContainers") for position in range(2)] == [four, {}]
    assert verdict.pod["spec"]["containers"][1]["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert not verdict.warnings


@pytest.mark.parametrize(
    ("annotations", "chosen"),
    [
        ({}, "a"),
        ({DEFAULT_CONTAINER: "b"}, "b"),
        ({DEFAULT_CONTAINER: "i"}, "a"),  # an init container ends before the others start
        ({DEFAULT_CONTAINER: "gone"}, "a"),
        ({DEFAULT_CONTAINER: "no"}, "a"),
    ],
)
def test_pod_that_requests_no_gpu_gets_the_cards_in_its_main_container(
    admit: Make, pod: Make, annotations: dict[str, str], chosen: str
) -> None:
    """That is the one that kubectl takes as its main container, else the first; a count of 0 declines the cards."""
    sent = pod(container("no", gpu="0"), {"name": "a"}, {"name": "b"}, init=({"name": "i"},))
    verdict = admit(claims(sent, **annotations), claims=CLAIMS)
    assert verdict.warnings == [f"GpuClaim exclusive: no container requests {COUNT}, so only {chosen} gets the cards"]
    by_name = {each["name"]: each for each in verdict.pod["spec"]["containers"]}
    assert [name for name in by_name if PERCENT in by_name[name].get("resources", {}).get("limits", {})] == [chosen]


def test_labels_of_the_claim_are_added_to_the_node_selector(admit: Make, pod: Make) -> None:
    """The field is immutable, and every scheduler and autoscaler obeys it."""
    for selector in ({}, {"nodeSelector": {}}, {"nodeSelector": {"zone": "z", "pool": "a"}}):
        verdict = admit(claims(pod({"name": "main"}, **selector), "pool"), claims=CLAIMS)
        assert verdict.pod["spec"]["nodeSelector"] == {**selector.get("nodeSelector", {}), "pool": "a", "a/b": "c"}
    assert "nodeSelector" not in admit(claims(pod({"name": "main"})), claims=CLAIMS).pod["spec"]


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "tranche", "gpu-scheduler"])
def test_claim_pod_is_routed_to_the_scheduler(admit: Make, pod: Make, scheduler: str) -> None:
    """So are the pods that name one of its aliases."""
    settings = WebhookSettings(aliases=("gpu-scheduler",))
    verdict = admit(claims(pod({"name": "main"}, schedulerName=scheduler)), claims=CLAIMS, settings=settings)
    assert verdict.pod["spec"]["schedulerName"] == "tranche"


@pytest.mark.parametrize("label", [{"gpu.scheduling/injection": "disabled"}, {"hami.io/webhook": "ignore"}])
def test_pod_of_others_needs_no_claim(admit: Make, pod: Make, label: dict[str, str]) -> None:
    """A pod that opted out, or that names another scheduler, is unchanged, and its claim is not looked up."""
    lookup = Claims({})
    sent = claims(pod({"name": "main"}), "other")
    sent["metadata"]["labels"] = label
    assert not admit(sent, claims=lookup).operations
    assert admit(claims(pod({"name": "main"}, schedulerName="batch"), "other"), claims=lookup).allowed
    assert lookup.reads == []


amounts = st.fixed_dictionaries({}, optional={name: st.sampled_from(["1", "4"]) for name in ("gpu",)})
claim_pods = st.builds(
    lambda regular, init, name, main: claims(
        {
            "metadata": {"name": "p"},
            "spec": {
                "containers": [container(f"c{n}", **each) for n, each in enumerate(regular)],
                **({"initContainers": [container(f"i{n}", **each) for n, each in enumerate(init)]} if init else {}),
            },
        },
        name,
        **({DEFAULT_CONTAINER: main} if main else {}),
    ),
    st.lists(amounts, min_size=1, max_size=3),
    st.lists(amounts, max_size=2),
    st.sampled_from([*SPECS]),
    st.sampled_from(["", "c0"]),
)
SIDECAR = {"name": "proxy", "image": "istio"}


@given(sent=claim_pods, before=st.booleans(), first=st.booleans())
def test_sidecar_injected_before_or_after_changes_nothing(
    admit: Make,
    sent: Any,
    before: bool,  # noqa: FBT001
    first: bool,  # noqa: FBT001
) -> None:
    """The cards stay where they were, and the sidecar sees none; a second mutation is empty."""
    reference = admit(sent, claims=CLAIMS)
    if not reference.allowed:
        return
    pod = copy.deepcopy(sent if before else reference.pod)
    annotations = pod["metadata"]["annotations"]
    annotations.setdefault(DEFAULT_CONTAINER, "c0")  # as Istio does
    pod["spec"]["containers"].insert(0 if first else len(pod["spec"]["containers"]), dict(SIDECAR))
    verdict = admit(pod, claims=CLAIMS)
    assert verdict.allowed
    rest = copy.deepcopy(verdict.pod)
    (proxy,) = [each for each in rest["spec"]["containers"] if each["name"] == "proxy"]
    assert proxy["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    rest["spec"]["containers"].remove(proxy)
    assert rest["spec"] == reference.pod["spec"]
    assert not admit(verdict.pod, claims=CLAIMS).operations


@given(sent=claim_pods)
def test_scheduler_accepts_what_admission_prepared(admit: Make, sent: Any) -> None:
    """A prepared pod does not contradict its claim, and the claim can be read from it."""
    verdict = admit(sent, claims=CLAIMS)
    if verdict.allowed:
        name = sent["metadata"]["annotations"][CLAIM]
        spec = decode_pod(msgspec.Raw(json.dumps(verdict.pod).encode())).spec
        own = read_pod_request(spec, AllocationSettings())
        claimed = read_request(spec, own, name, SPECS[name], AllocationSettings())
        assert claimed.placed.containers[0].count == SPECS[name].devices.count
