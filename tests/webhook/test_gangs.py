"""Admission refuses a gang that the scheduler could not read, and warns of what has no effect."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.claim import ClaimDevices, ClaimSpec
from allocation.errors import AllocationError
from allocation.gang import declared
from allocation.names import CLAIM, GANG_KEYS
from allocation.settings import AllocationSettings
from webhook import dry_run
from webhook.mutation_cache import MutationCache
from webhook.quotas import Quotas
from webhook.review import decode_pod
from webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.mutation_cache import EncodedMutation

GROUP, GANG, SIZE = "scheduling.x-k8s.io/pod-group", "gpu.scheduling/gang", "gpu.scheduling/gang-min-members"
TIMEOUT = "gpu.scheduling/gang-timeout"
LABELS = (GANG, GROUP, "kueue.x-k8s.io/pod-group-name", "pod-group.scheduling.sigs.k8s.io/min-available", "job")
VALUES = ("a", "4", "0", "many", "10m", "job", "true", "9999")


def admitted(
    labels: dict[str, str],
    annotations: dict[str, str],
    *,
    group: str = "",
    claim: ClaimSpec | None = None,
    cache: MutationCache | None = None,
    **limits: str,
) -> EncodedMutation:
    """Return the mutation of a pod, maybe of a PodGroup, that asks for a card unless `limits` say otherwise."""
    resources = {"limits": limits or {"nvidia.com/gpu": "1"}}
    made: dict[str, Any] = {
        "metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }
    if group:
        made["spec"]["schedulingGroup"] = {"podGroupName": group}
    cache = cache or MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    return cache.get(
        decode_pod(json.dumps(made).encode()),  # type: ignore[arg-type]  # raw JSON
        username="alice",
        quotas=Quotas(),
        claim=claim,
    )


def _refusal(read: Callable[[], object]) -> str:
    """Return the message with which something is refused; empty if it is not."""
    try:
        read()
    except AllocationError as error:
        return str(error)
    return ""


@given(
    st.dictionaries(st.sampled_from(LABELS), st.sampled_from(VALUES)),
    st.dictionaries(st.sampled_from(sorted(GANG_KEYS)), st.sampled_from(VALUES)),
)
def test_admission_accepts_exactly_what_the_scheduler_reads(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    """For whatever labels and annotations."""
    assert _refusal(lambda: admitted(labels, annotations)) == _refusal(lambda: declared(labels, annotations))


@pytest.mark.parametrize(
    ("labels", "annotations", "warning"),
    [
        ({}, {SIZE: "4"}, f"annotation {SIZE} has no effect: the pod names no gang; add label {GANG}"),
        (
            {},
            {"tensor-fusion.ai/gang-enabled": "true"},
            "annotation tensor-fusion.ai/gang-enabled has no effect without tensor-fusion.ai/gang-group-key: add it",
        ),
        (
            {GANG: "a", GROUP: "b"},
            {SIZE: "4"},
            f"the pod names two gangs, 'a' by {GANG} and 'b' by {GROUP}: the first counts; remove one",
        ),
        (
            {GANG: "a"},
            {TIMEOUT: "10m"},
            f"the timeout of gang 'a' has no effect without its size: add annotation {SIZE}",
        ),
    ],
)
def test_what_has_no_effect_is_warned_of(labels: dict[str, str], annotations: dict[str, str], warning: str) -> None:
    """The pod is admitted."""
    found = admitted(labels, annotations)
    assert found.operations
    assert found.warnings[-1] == warning


def test_a_timeout_without_a_size_has_an_effect_beside_a_pod_group() -> None:
    """The PodGroup has the size, which admission does not read."""
    assert admitted({GROUP: "a"}, {TIMEOUT: "10m"}).warnings == ()


def test_what_a_pod_says_beside_its_scheduling_group_has_an_effect() -> None:
    """The PodGroup is its gang, and comes before a label that names another one."""
    assert admitted({}, {SIZE: "4", TIMEOUT: "10m"}, group="a").warnings == ()
    assert admitted({GANG: "b"}, {}, group="a").warnings == (
        f"the pod names two gangs, 'a' by spec.schedulingGroup and 'b' by {GANG}: the first counts; remove one",
    )


def test_the_gang_of_a_claim_comes_first() -> None:
    """For the webhook, and for `kubectl gpu` and the scheduler, which ask what it would say."""
    claim, keys = ClaimSpec(ClaimDevices(1), gang_ref="a"), {CLAIM: "one", SIZE: "4"}
    two = f"the pod names two gangs, 'a' by gangRef of its GpuClaim and 'b' by {GANG}: the first counts; remove one"
    for labels, expected in (({}, ()), ({GANG: "b"}, (two,))):
        assert admitted(labels, keys, claim=claim).warnings == expected
        made: dict[str, Any] = {
            "metadata": {"name": "p", "labels": labels, "annotations": dict(keys)},
            "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
        }
        found = dry_run.dry_run(
            made,
            namespace="team",
            labels=None,
            quotas={},
            gpu_quotas={},
            find_claim={"one": claim}.get,
            find_queue=lambda _: None,
            find_bindings=lambda _: (),
            allocation=AllocationSettings(),
            settings=WebhookSettings(),
        )
        assert found == expected


@pytest.mark.parametrize("labels", [{GANG: "a"}, {GANG: "a", GROUP: "a"}, {}])
def test_what_has_an_effect_is_not_warned_of(labels: dict[str, str]) -> None:
    """Nor are two forms that name one gang."""
    annotations = {SIZE: "4", TIMEOUT: "10m"} if labels else {}
    assert admitted(labels, annotations).warnings == ()


def test_pods_that_are_not_ours_are_left_alone() -> None:
    """Whatever they say of gangs: another scheduler may read it."""
    found = admitted({GROUP: "a"}, {SIZE: "many"}, cpu="1")
    assert (found.operations, found.warnings) == (0, ())


def test_the_warnings_of_one_pod_are_not_those_of_the_next() -> None:
    """Pods of one template share a mutation, whatever their gangs are."""
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    both = admitted({GANG: "a", GROUP: "b"}, {}, cache=cache)
    one = admitted({GANG: "a"}, {}, cache=cache)
    assert both.warnings
    assert one.warnings == ()
    assert both.patch is one.patch
    assert admitted({}, {}, group="a", cache=cache).patch is admitted({}, {}, group="b", cache=cache).patch


def test_a_pod_that_is_prepared_already_is_refused_as_well() -> None:
    """`kubectl gpu inject` has completed it, or admission itself, which the API server may invoke again."""
    made: dict[str, Any] = {
        "metadata": {"name": "p", "labels": {GANG: "a"}, "annotations": {SIZE: "4"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    rules: dict[str, Any] = {"allocation": AllocationSettings(), "settings": WebhookSettings(), "quotas": Quotas()}
    found = {"find_claim": lambda _: None, "find_membership": lambda _: None, "find_bound": lambda _: None}
    assert dry_run.admit(made, username="alice", **rules, **found).operations
    made["metadata"]["annotations"][SIZE] = "many"
    cache = MutationCache(allocation=AllocationSettings(), settings=WebhookSettings())
    pod = decode_pod(json.dumps(made).encode())  # type: ignore[arg-type]  # raw JSON
    with pytest.raises(AllocationError, match=SIZE):
        cache.get(pod, username="alice", quotas=Quotas(), claim=None)
