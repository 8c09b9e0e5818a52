"""What is remembered about pods is what would be decided anew."""

import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from webhook import patch
from webhook.decisions import Decisions
from webhook.mutation import mutate
from webhook.refusal import RefusedError
from webhook.review import Pod, decode_pod
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
    "kubernetes.io/config.mirror": ("x",),
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
            optional={"schedulerName": st.sampled_from(["tranche", "mine"]), "nodeName": st.sampled_from(["n1", "n2"])},
        ),
    }
)
QUOTAS = st.sampled_from([{}, {"small": {"limits.nvidia.com/gpu": "1"}}])
STEPS = st.lists(st.tuples(PODS, st.sampled_from(["alice", TRUSTED, NODE]), QUOTAS), min_size=1, max_size=8)


def _read(pod: dict[str, Any]) -> Pod:
    return decode_pod(msgspec.Raw(json.dumps(pod).encode()))


def _outcome(decide: Callable[[], tuple[object, ...]]) -> tuple[object, ...]:
    try:
        return decide()
    except (AllocationError, RefusedError) as error:
        return (type(error), str(error))


@given(STEPS)
def test_a_remembered_decision_is_the_one_that_would_be_made(steps: list[tuple[Any, str, Any]]) -> None:
    """Over any history of pods, senders and quotas, and each pod twice."""
    allocation, settings = AllocationSettings(), WebhookSettings()
    decisions = Decisions(allocation=allocation, settings=settings)
    for sent, username, quotas in [*steps, *steps]:
        pod = _read(sent)

        def anew(pod: Pod = pod, username: str = username, quotas: Any = quotas) -> tuple[object, ...]:
            made = mutate(pod, username=username, allocation=allocation, settings=settings, quotas=quotas)
            return bytes(patch.encode(made.operations)), len(made.operations), made.warnings

        def remembered(pod: Pod = pod, username: str = username, quotas: Any = quotas) -> tuple[object, ...]:
            made = decisions.about(pod, username=username, quotas=quotas)
            return bytes(made.patch), made.operations, made.warnings

        assert _outcome(remembered) == _outcome(anew)


def test_no_resources_are_not_empty_ones() -> None:
    """What is written into an empty object has to be made where there is none."""
    decisions = Decisions(allocation=AllocationSettings(), settings=WebhookSettings())
    patches = []
    for container in ({"name": "main", "resources": {}}, {"name": "main"}):
        sent = {
            "metadata": {"annotations": {"gpu.scheduling/allocation": ALLOCATION}},
            "spec": {"containers": [container]},
        }
        made = decisions.about(_read(sent), username=TRUSTED, quotas={})
        patches.append(b64decode(msgspec.json.decode(made.patch, type=str)))
    assert b'"/spec/containers/0/resources/limits"' in patches[0]
    assert b'"/spec/containers/0/resources"' in patches[1]


def test_pods_of_one_template_are_decided_once(
    pod: Callable[..., Any], gpu: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They differ in their names, their labels, the index that a Job gives them and the volume of their token."""
    asked: list[Pod] = []

    def counted(pod: Pod, **rest: Any) -> Any:
        asked.append(pod)
        return mutate(pod, **rest)

    monkeypatch.setattr("webhook.decisions.mutate", counted)
    decisions = Decisions(allocation=AllocationSettings(), settings=WebhookSettings())
    for index in range(3):
        made = pod(gpu(volumeMounts=[{"name": f"kube-api-access-{index}", "mountPath": "/var/run/secrets"}]))
        made["metadata"] = {
            "name": f"job-{index}",
            "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        }
        assert decisions.about(_read(made), username="alice", quotas={}).operations
    assert len(asked) == 1


def test_what_is_remembered_has_an_end(pod: Callable[..., Any], gpu: Callable[..., Any]) -> None:
    """The oldest goes, and a patch of many containers is not kept at all."""
    decisions = Decisions(allocation=AllocationSettings(), settings=WebhookSettings())
    for number in range(1100):
        decisions.about(_read(pod(gpu(f"c{number}"))), username="alice", quotas={})
    assert len(decisions._made) == 1024
    before = list(decisions._made)
    decisions.about(_read(pod(*(gpu(f"c{number}") for number in range(100)))), username="alice", quotas={})
    assert list(decisions._made) == before
