"""The status of a GpuQueue shows what the queue has and is entitled to, in digits that people read."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.fairness.queue_spec import QueueKey, QueueSpec
from allocation.fairness.shares import Share
from allocation.label_selector import LabelSelector
from allocation.settings import AllocationSettings
from cluster.gpu_queue import GpuQueueStatus, QueueCondition
from scheduler.fairness import queue_status
from scheduler.fairness.standings import Standing
from scheduler.fairness.use import Use

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NEW = GpuQueueStatus()
OPEN = QueueSpec(namespace_selector=LabelSelector())
SETTINGS = AllocationSettings()


def standing(
    *, spec: QueueSpec = OPEN, use: Use | None = None, waiting: int = 0, share: Share | None = None, weights: int = 2
) -> Standing:
    """Return what is known of a queue that shares with another one of weight 1, unless `weights` says otherwise."""
    return Standing(QueueKey(name="team"), spec, use or Use(), waiting, share or Share(), weights)


def written(standing: Standing, *, before: GpuQueueStatus = NEW, generation: int = 1, now: str = NOW) -> GpuQueueStatus:
    """Return the status of a queue."""
    return queue_status.desired(
        standing, namespaces=2, generation=generation, before=before, settings=SETTINGS, now=now
    )


def condition(made: GpuQueueStatus, kind: str) -> QueueCondition:
    """Return a condition of a status."""
    (found,) = (each for each in made.conditions if each.type == kind)
    return found


def test_namespaces_that_name_the_queue_are_counted() -> None:
    """Policy tranche-queue-deletion spares a queue that any namespace names."""
    assert written(standing()).namespaces == 2


def test_a_limit_that_limits_nothing_is_reported() -> None:
    """With the name that was probably meant; the queue takes pods all the same."""
    made = written(standing(spec=msgspec.structs.replace(OPEN, limits={"nvidia.com/gpumemory": 5, "memory": 1})))
    assert condition(made, "Valid").status == "False"
    assert condition(made, "Valid").message == (
        'spec.limits["memory"] has no effect: use a ResourceQuota of each namespace for memory;'
        ' spec.limits["nvidia.com/gpumemory"] has no effect: did you mean nvidia.com/gpumem?'
    )
    assert condition(made, "Active").status == "True"
    assert condition(written(standing()), "Valid").status == "True"


def test_what_pods_hold_is_shown_in_the_units_of_a_container() -> None:
    """Compute in percent, rounded up, as is memory if a container asks for it in larger units; CPU in thousandths."""
    use = Use(memory_mib=4001, cores=1005, cards=3, cpu=1500, memory_bytes=2**30, pods=2)
    expected = {
        "nvidia.com/gpumem": 4001,
        "nvidia.com/gpucores": 101,
        "nvidia.com/gpu": 3,
        "cpu": 1500,
        "memory": 2**30,
    }
    made = written(standing(use=use, waiting=7), generation=3)
    assert made.allocated == expected
    assert (made.running, made.waiting, made.observed_generation) == (2, 7, 3)
    pages = AllocationSettings(memory_factor=4)
    assert queue_status.allocated(standing(use=use), pages)["nvidia.com/gpumem"] == 1001


def test_shares_have_four_decimals_and_name_the_dominant_resource() -> None:
    """The weighted share is the share divided by the weight, the entitlement the weight divided by all weights."""
    spec = QueueSpec(weight=3, namespace_selector=LabelSelector())
    made = written(standing(spec=spec, share=Share(1, 7, 1), weights=9))
    assert (made.share, made.weighted_share, made.entitlement) == ("0.1429", "0.0476", "0.3333")
    assert made.dominant_resource == "nvidia.com/gpucores"
    nothing = written(standing())
    assert (nothing.share, nothing.dominant_resource) == ("0.0000", "")


def test_a_share_of_cards_that_are_gone_is_infinite() -> None:
    """A queue whose pods keep cards that no other pod can have any more has more than its entitlement."""
    made = written(standing(share=Share(4, 0, 2), waiting=1))
    assert (made.share, made.weighted_share, made.dominant_resource) == ("infinite", "infinite", "nvidia.com/gpu")
    assert queue_status.is_overused(made)
    assert not queue_status.is_underused(made)


@pytest.mark.parametrize(
    ("spec", "value", "reason", "names"),
    [
        (OPEN, "True", "Active", "are placed"),
        (QueueSpec(namespace_selector=LabelSelector(), suspended=True), "False", "Suspended", "spec.suspended"),
        (QueueSpec(), "False", "NoNamespace", "spec.namespaceSelector"),
        (QueueSpec(suspended=True), "False", "Suspended", "spec.suspended"),
    ],
)
def test_active_says_whether_new_pods_are_placed(spec: QueueSpec, value: str, reason: str, names: str) -> None:
    """If not, the message names the field that is the cause."""
    active = condition(written(standing(spec=spec)), "Active")
    assert (active.status, active.reason) == (value, reason)
    assert names in active.message


@pytest.mark.parametrize(
    ("used", "value", "reason", "message"),
    [
        (3, "True", "Overused", "has 0.7500 of nvidia.com/gpumem, more than its entitlement of 0.5000"),
        (2, "False", "WithinEntitlement", "has 0.5000 of nvidia.com/gpumem, within its entitlement of 0.5000"),
        (0, "False", "WithinEntitlement", "has nothing, within its entitlement of 0.5000"),
    ],
)
def test_overused_names_the_numbers_and_the_resource(used: int, value: str, reason: str, message: str) -> None:
    """A queue that has exactly its entitlement is not overused."""
    overused = condition(written(standing(share=Share(used, 4, 0))), "Overused")
    assert (overused.status, overused.reason, overused.message) == (value, reason, message)


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    """Other digits, another reason or another condition do not move it."""

    def times(made: GpuQueueStatus) -> list[str]:
        return [condition(made, kind).last_transition_time for kind in ("Active", "Overused")]

    before = written(standing(share=Share(3, 4)), now=THEN)
    more = written(standing(share=Share(4, 4), waiting=1), before=before)
    assert more != before
    assert times(more) == [THEN, THEN]
    less = written(standing(share=Share(1, 4), spec=QueueSpec(suspended=True)), before=before)
    assert times(less) == [NOW, NOW]
    other_reason = written(standing(spec=QueueSpec()), before=less, now="2026-01-01T00:02:00Z")
    assert times(other_reason) == [NOW, NOW]


def test_a_queue_that_did_not_change_has_the_same_status_later() -> None:
    """So it is not written again: neither by this leader, nor by the next one, which reads it from the API server."""
    same = standing(share=Share(3, 4), use=Use(memory_mib=3, pods=1), waiting=2)
    before = msgspec.convert(msgspec.to_builtins(written(same, now=THEN)), GpuQueueStatus)
    assert written(same, before=before, now=NOW) == before


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 10_000), st.integers(0, 30_000), st.integers(0, 2))
def test_texts_compare_as_the_numbers_do(used: int, total: int, weight: int, others: int, waiting: int) -> None:
    """Whether a status says underused differs from the exact answer at most by the digits that are not printed."""
    exact = standing(spec=QueueSpec(weight=weight), share=Share(used, total), weights=weight + others, waiting=waiting)
    made = written(exact)
    assert queue_status.is_overused(made) == exact.is_overused
    difference = math.inf if not total else abs(used / total - weight / (weight + others))
    if difference > 0.0001:
        assert queue_status.is_underused(made) == (exact.is_underused and bool(total))
    assert not (queue_status.is_underused(made) and queue_status.is_overused(made))
