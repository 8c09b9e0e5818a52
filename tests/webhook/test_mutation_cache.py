"""The cache returns the mutation that would be computed again."""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.bindings.binding import AppIdentity
from allocation.bindings.granted import Granted
from allocation.bindings.grants import Grant
from allocation.claim import ClaimDevices, ClaimSpec
from allocation.errors import AllocationError
from allocation.fairness.quota_spec import QuotaSpec
from allocation.settings import AllocationSettings
from webhook import patch
from webhook.mutation import mutate
from webhook.mutation_cache import MutationCache
from webhook.quotas import Quotas
from webhook.review import ForbiddenPodError, Pod, decode_pod
from webhook.settings import WebhookSettings

TRUSTED = "system:serviceaccount:tranche-system:tranche-static"
NODE = "system:node:n1"
ALLOCATION = json.dumps(
    {"v": 1, "node": "n1", "containers": {"main": [{"uuid": "GPU-a", "index": 0, "memoryMiB": 3000, "cores": 300}]}}
)
KEYS = {
    "note": ("a", "b"),
    "gpu.scheduling/allocation": (ALLOCATION,),
    "gpu.scheduling/allocated": ("0", "1"),
    "nvidia-visible-devices.gpu.scheduling/main": ("GPU-a", "GPU-b"),
    "hami.io/vgpu-node": ("n1",),
    "hami.io/gpu-scheduler-policy": ("spread", "nonsense"),
    "nvidia.com/numa-bind": ("true", "perhaps"),
    "tensor-fusion.ai/require-gpu-topology": ("true", "perhaps"),
    "kubernetes.io/config.mirror": ("x",),
    "gpu.scheduling/claim": ("c", "a/b"),
    "kubectl.kubernetes.io/default-container": ("main", "other"),
}
CONTAINERS = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "other"])},
    optional={
        "resources": st.fixed_dictionaries(
            {},
            optional={"limits": st.fixed_dictionaries({"nvidia.com/gpu": st.sampled_from(["1", "2", "0", "x"])})},
        ),
        "env": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["A", "CUDA_VISIBLE_DEVICES"])},
                optional={"value": st.sampled_from(["0", "1"])},
            ),
            max_size=2,
        ),
    },
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.text(max_size=2)},
            optional={
                "annotations": st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in KEYS.items()}),
                "labels": st.fixed_dictionaries(
                    {"app": st.sampled_from("ab")},
                    optional={"gpu.scheduling/injection": st.just("disabled"), "hami.io/webhook": st.just("ignore")},
                ),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, max_size=2, unique_by=lambda each: each["name"])},
            optional={
                "schedulerName": st.sampled_from(["tranche", "mine"]),
                "nodeName": st.sampled_from(["n1", "n2"]),
                "nodeSelector": st.sampled_from([{}, {"pool": "a"}]),
                "terminationGracePeriodSeconds": st.sampled_from([0, 30]),
            },
        ),
    }
)
QUOTAS = st.sampled_from(
    [
        Quotas(),
        Quotas({"small": {"limits.nvidia.com/gpu": "1"}}),
        *(
            Quotas(gpu_quotas={"small": msgspec.convert(spec, QuotaSpec)})
            for spec in (
                {"single": {"maxCards": 1}},
                {"single": {"defaults": {"nvidia.com/gpumem": 3000}}},
                {"single": {"defaults": {"nvidia.com/gpumem": 4000}}},
                {"single": {"limits": {"nvidia.com/gpucores": 50}}},
                {"total": {"limits": {"nvidia.com/gpu": 1}}},
                {"total": {"maxPods": 0}},
            )
        ),
    ]
)
CLAIMS = st.sampled_from(
    [
        None,
        ClaimSpec(ClaimDevices(1)),
        ClaimSpec(ClaimDevices(2, "Shared", memory_mib=3000)),
        ClaimSpec(ClaimDevices(1, visible_as="UUID")),
        msgspec.convert({"devices": {"count": 1}, "selector": {"matchLabels": {"pool": "a"}}}, ClaimSpec),
        msgspec.convert({"devices": {"count": 1}, "selector": {"matchLabels": {"pool": "b"}}}, ClaimSpec),
        msgspec.convert({"devices": {"count": 1}, "topology": {"mode": "Required"}}, ClaimSpec),
        msgspec.convert({"devices": {"count": 1}, "network": {"minPorts": 1}}, ClaimSpec),
        msgspec.convert({"devices": {"count": 1}, "network": {"preferredHcas": ["mlx5_0"]}}, ClaimSpec),
        msgspec.convert({"devices": {"count": 1}, "storage": {"cuFile": "Preferred"}}, ClaimSpec),
    ]
)
STEPS = st.lists(st.tuples(PODS, st.sampled_from(["alice", TRUSTED, NODE]), QUOTAS, CLAIMS), min_size=1, max_size=8)


def _read(pod: dict[str, Any]) -> Pod:
    return decode_pod(msgspec.Raw(json.dumps(pod).encode()))


def _outcome(decide: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
    try:
        return decide()
    except (AllocationError, ForbiddenPodError) as error:
        return (type(error), str(error))


@given(STEPS)
def test_cached_mutation_equals_a_computed_one(steps: list[tuple[Any, str, Any, Any]]) -> None:
    """This holds for any sequence of pods, users, quotas and GpuClaims, with each pod twice."""
    allocation, settings = AllocationSettings(), WebhookSettings()
    cache = MutationCache(allocation=allocation, settings=settings)
    for sent, username, quotas, claim in [*steps, *steps]:
        pod = _read(sent)

        def computed(
            pod: Pod = pod, username: str = username, quotas: Any = quotas, claim: Any = claim
        ) -> tuple[object, ...]:
            made = mutate(pod, username=username, allocation=allocation, settings=settings, quotas=quotas, claim=claim)
            return bytes(patch.encode(made.operations)), len(made.operations), made.warnings

        def cached(
            pod: Pod = pod, username: str = username, quotas: Any = quotas, claim: Any = claim
        ) -> tuple[object, ...]:
            made = cache.get(pod, username=username, quotas=quotas, claim=claim)
            return bytes(made.patch), made.operations, made.warnings

        assert _outcome(cached) == _outcome(computed)


def test_missing_resources_are_not_confused_with_empty_ones() -> None:
    """A patch adds a member to an empty object, but must create a missing one."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    patches = []
    for container in ({"name": "main", "resources": {}}, {"name": "main"}):
        sent = {
            "metadata": {"annotations": {"gpu.scheduling/allocation": ALLOCATION}},
            "spec": {"containers": [container]},
        }
        made = cache.get(_read(sent), username=TRUSTED, quotas=Quotas(), claim=None)
        patches.append(b64decode(msgspec.json.decode(made.patch, type=str)))
    assert b'"/spec/containers/0/resources/limits"' in patches[0]
    assert b'"/spec/containers/0/resources"' in patches[1]


def test_pods_of_different_claims_are_mutated_separately(pod: Callable[..., Any]) -> None:
    """So are pods whose main containers or node selectors differ: each decides what a claim writes."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())

    def patched(claim: ClaimSpec, main: str = "a", **spec: Any) -> bytes:
        sent = pod({"name": "a"}, {"name": "b"}, **spec)
        sent["metadata"]["annotations"] = {
            "gpu.scheduling/claim": "c",
            "kubectl.kubernetes.io/default-container": main,
        }
        made = cache.get(_read(sent), username="alice", quotas=Quotas(), claim=claim)
        return b64decode(msgspec.json.decode(made.patch, type=str))

    one, two = ClaimSpec(ClaimDevices(1)), ClaimSpec(ClaimDevices(2))
    pool = msgspec.convert({"devices": {"count": 1}, "selector": {"matchLabels": {"pool": "a"}}}, ClaimSpec)
    patches = [
        patched(one),
        patched(two),
        patched(pool),
        patched(pool, nodeSelector={"zone": "z"}),
        patched(one, "b"),
    ]
    assert len(set(patches)) == len(patches)
    assert patched(one) == patches[0]


def test_pods_of_one_template_are_mutated_once(
    pod: Callable[..., Any], gpu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such pods differ in names, labels, the index of a Job and the volume of their token."""
    mutated: list[Pod] = []

    def counted(pod: Pod, **rest: Any) -> Any:
        mutated.append(pod)
        return mutate(pod, **rest)

    monkeypatch.setattr("webhook.mutation_cache.mutate", counted)
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    for index in range(3):
        made = pod(gpu(volumeMounts=[{"name": f"kube-api-access-{index}", "mountPath": "/var/run/secrets"}]))
        made["metadata"] = {
            "name": f"job-{index}",
            "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        }
        assert cache.get(_read(made), username="alice", quotas=Quotas(), claim=None).operations
    assert len(mutated) == 1


def granted(app: str, memory_mib: int) -> Granted:
    """Return what a binding gives an application."""
    return Granted(AppIdentity(app, "", "team"), (Grant("GPU-a", memory_mib, "b"),))


def test_pods_of_different_applications_are_mutated_separately(
    pod: Callable[..., Any], gpu: Callable[..., Any]
) -> None:
    """What bindings say about a pod is not a field of the pod."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    outcomes = [
        cache.get(_read(pod(gpu())), username="alice", quotas=Quotas(), claim=None, bound=bound)
        for bound in (None, Granted(None), granted("x", 4000), granted("y", 4000), granted("y", 5000))
    ]
    assert len({(bytes(each.patch), each.warnings) for each in outcomes}) == len(outcomes)


def test_cache_is_bounded(pod: Callable[..., Any], gpu: Callable[..., Any]) -> None:
    """The oldest entry is evicted, and a patch of many containers is not cached."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    for number in range(1100):
        cache.get(_read(pod(gpu(f"c{number}"))), username="alice", quotas=Quotas(), claim=None)
    assert len(cache._mutations) == 1024
    before = list(cache._mutations)
    cache.get(_read(pod(*(gpu(f"c{number}") for number in range(32)))), username="alice", quotas=Quotas(), claim=None)
    assert list(cache._mutations) == before
