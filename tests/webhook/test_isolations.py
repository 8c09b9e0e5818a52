"""The isolation of a new pod: who may choose it, what it defaults to, and which variables come with it."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.isolation import Isolation
from allocation.names import ALLOCATION, ISOLATION, MODE
from allocation.wire import environment
from tests.webhook.conftest import TRUSTED
from tests.webhook.support.claims import CLAIMS, claims
from webhook.settings import WebhookSettings

Make = Callable[..., Any]
DRIVER = ("NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT")
DAEMON = ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
ENFORCED = WebhookSettings(isolation=Isolation.CUDA, allowed_isolations=(Isolation.CUDA, Isolation.MIG))


def chosen(verdict: Any) -> str | None:
    """Return the isolation of an admitted pod."""
    assert verdict.allowed, verdict.message
    found: str | None = verdict.pod["metadata"].get("annotations", {}).get(ISOLATION)
    return found


def choosing(pod: dict[str, Any], isolation: str, **more: str) -> dict[str, Any]:
    """Return a pod that chooses an isolation."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {ISOLATION: isolation, **more}}}


@pytest.fixture
def gpu_pod(pod: Make, gpu: Make) -> dict[str, Any]:
    """A pod that requests a slice of a card."""
    made: dict[str, Any] = pod(gpu())
    return made


@pytest.mark.parametrize(
    ("own", "of_namespace", "configured", "expected"),
    [
        ("", "", "none", None),
        ("", "", "cuda", "cuda"),
        ("", "mps", "cuda", "mps"),
        ("hami-core", "mps", "cuda", "hami-core"),
        ("none", "mps", "cuda", "none"),
        ("", "none", "cuda", None),
    ],
)
def test_the_pod_decides_then_its_namespace_then_the_configuration(
    admit: Make,
    gpu_pod: dict[str, Any],
    *,
    own: str,
    of_namespace: str,
    configured: str,
    expected: str | None,
) -> None:
    """What was decided is written into the pod, where the scheduler reads it; `none` is not."""
    sent = choosing(gpu_pod, own) if own else gpu_pod
    verdict = admit(sent, isolation=of_namespace, settings=WebhookSettings(isolation=Isolation(configured)))
    assert chosen(verdict) == expected
    again = admit(verdict.pod, isolation=of_namespace, settings=WebhookSettings(isolation=Isolation(configured)))
    assert again.operations == []


def test_annotations_of_the_pod_stay(admit: Make, pod: Make, gpu: Make) -> None:
    """The default is added to them."""
    sent = pod(gpu())
    sent["metadata"]["annotations"] = {"team/owner": "a"}
    assert admit(sent, isolation="cuda").pod["metadata"]["annotations"] == {"team/owner": "a", ISOLATION: "cuda"}


@pytest.mark.parametrize("word", ["time-slicing", "", "CUDA", "none," * 1000])
def test_an_unknown_isolation_is_refused_in_words(admit: Make, pod: Make, gpu: Make, word: str) -> None:
    """The message names the annotation and the valid words, and has a bound."""
    verdict = admit(choosing(pod(gpu()), word))
    assert (verdict.allowed, verdict.code) == (False, 400)
    assert f'metadata.annotations["{ISOLATION}"] holds' in verdict.message
    assert "none, hami-core, mps, mig, cuda" in verdict.message
    assert len(verdict.message) < 300


def test_an_unknown_isolation_of_a_namespace_is_refused_in_words(admit: Make, pod: Make, gpu: Make) -> None:
    """A pod that chooses for itself is not affected."""
    verdict = admit(pod(gpu()), isolation="cud")
    assert not verdict.allowed
    assert f"label {ISOLATION} of the namespace is 'cud': it must be one of none," in verdict.message
    assert chosen(admit(choosing(pod(gpu()), "mps"), isolation="cud")) == "mps"


@pytest.mark.parametrize("own", ["none", "hami-core", "mps"])
def test_a_pod_cannot_choose_less_than_is_allowed(admit: Make, pod: Make, gpu: Make, own: str) -> None:
    """An administrator who wants limits to hold allows only what enforces them."""
    verdict = admit(choosing(pod(gpu()), own), settings=ENFORCED)
    assert verdict.code == 403
    assert f"isolation {own} is not allowed here, by annotation {ISOLATION} of the pod: choose cuda or mig" in (
        verdict.message
    )
    assert "label" in admit(pod(gpu()), isolation=own, settings=ENFORCED).message


def test_a_default_that_is_not_allowed_is_no_configuration() -> None:
    """Every pod would be refused."""
    with pytest.raises(ValueError, match="isolation none is not among allowed_isolations: cuda"):
        WebhookSettings(allowed_isolations=(Isolation.CUDA,))


@pytest.mark.parametrize("asks", ["claim", "annotation"])
def test_a_pod_that_asks_for_instances_is_isolated_by_them(admit: Make, pod: Make, gpu: Make, asks: str) -> None:
    """The default of its namespace is for pods that share cards."""
    sent = claims(pod({"name": "main"}), "mig") if asks == "claim" else pod(gpu())
    if asks == "annotation":
        sent["metadata"]["annotations"] = {MODE: "mig"}
    assert chosen(admit(sent, isolation="cuda", claims=CLAIMS)) == "mig"
    assert chosen(admit(sent, claims=CLAIMS)) is None


@pytest.mark.parametrize(
    ("claim", "isolation", "containers", "words"),
    [
        ("mig", "cuda", 1, "GpuClaim mig gives MIG instances, and isolation cuda cannot limit"),
        ("shared", "mig", 1, "GpuClaim shared gives no MIG instances, and isolation mig"),
        ("slot", "mps", 1, "GpuClaim slot gives cards without a limit of memory"),
        ("shared", "hami-core", 2, "2 containers of the pod share GpuClaim shared"),
        ("shared", "none", 2, ""),
        ("shared", "cuda", 1, ""),
        ("exclusive", "cuda", 2, ""),
        ("mig", "mig", 2, ""),
    ],
)
def test_a_claim_that_an_isolation_cannot_limit_is_refused(
    admit: Make,
    pod: Make,
    *,
    claim: str,
    isolation: str,
    containers: int,
    words: str,
) -> None:
    """Otherwise the containers could use more than the claim gives them together."""
    resources = {"limits": {"nvidia.com/gpu": "2" if claim == "mig" else "1"}}
    sent = pod(*({"name": f"c{number}", "resources": resources} for number in range(containers)))
    verdict = admit(choosing(claims(sent, claim), isolation, **{"gpu.scheduling/claim": claim}), claims=CLAIMS)
    assert verdict.allowed == (words == "")
    assert words in verdict.message


@pytest.mark.parametrize(("isolation", "names"), [("cuda", DRIVER), ("mps", DAEMON), ("hami-core", ()), ("none", ())])
def test_variables_come_with_the_isolation_that_reads_them(
    admit: Make,
    pod: Make,
    gpu: Make,
    *,
    reference: Make,
    isolation: str,
    names: tuple[str, ...],
) -> None:
    """By reference, in place of what the user set; in other pods the user's are removed."""
    own = [{"name": name, "value": "999999"} for name in (*DRIVER, *DAEMON)]
    verdict = admit(choosing(pod(gpu(env=own), {"name": "other", "env": [*own]}), isolation))
    main, other = ({each["name"]: each for each in c["env"]} for c in verdict.pod["spec"]["containers"])
    assert [name for name in (*DRIVER, *DAEMON) if name in main] == [*names]
    for name in names:
        assert main[name] == reference(name, "main")
    assert [*other] == ["NVIDIA_VISIBLE_DEVICES"]
    assert len([each for each in verdict.warnings if "LD_PRELOAD" not in each]) == 2 * len(own)


def test_hami_core_that_no_container_loads_is_warned_of(admit: Make, pod: Make, gpu: Make) -> None:
    """Only HAMi's device plugin loads the library by itself; elsewhere the limits would be numbers in variables."""
    loads = [{"name": "LD_PRELOAD", "value": "/usr/local/vgpu/libvgpu.so"}]
    sent = pod(gpu("loads", env=loads), gpu("bare"), {"name": "other"})
    (warning,) = admit(choosing(sent, "hami-core")).warnings
    assert warning.startswith("container bare: LD_PRELOAD loads no HAMi-core")
    assert len(warning) <= 120
    assert admit(choosing(sent, "cuda")).warnings == []


@pytest.mark.parametrize("isolation", ["cuda", "mps", "hami-core"])
def test_static_allocation_has_the_values_of_its_isolation(admit: Make, pod: Make, gpu: Make, isolation: str) -> None:
    """A trusted identity chooses the cards; the limits are written as for any pod."""
    share = {"uuid": "GPU-a", "index": 3, "memoryMiB": 3000, "cores": 300}
    record = json.dumps({"v": 1, "node": "n1", "containers": {"main": [share]}})
    verdict = admit(choosing(pod(gpu()), isolation, **{ALLOCATION: record}), username=TRUSTED)
    keys = environment.references("main", 1, isolation=Isolation(isolation))
    values = environment.resolve(keys, verdict.pod["metadata"]["annotations"])
    limits = {
        "cuda": {"NVIDIA_GPU_MEMORY_LIMIT": "3000", "NVIDIA_GPU_MEMORY_REQUEST": "3000"},
        "mps": {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30"},
        "hami-core": {"CUDA_VISIBLE_DEVICES": "0"},
    }[isolation]
    assert {**values, **limits} == values
    assert all(values.values())
    assert admit(verdict.pod, username=TRUSTED).operations == []
    assert msgspec.json.decode(verdict.pod["metadata"]["annotations"][ALLOCATION])["node"] == "n1"
