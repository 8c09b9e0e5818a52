"""What is known of a gang is what a gang would know that had only its present pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from allocation.gang import Declaration
from allocation.names import HAND_OVER_NAME
from scheduler.gangs.gang import Gang, GangKey
from tests.scheduler.support.builders import pod

if TYPE_CHECKING:
    from scheduler.objects import Pod

KEY: Final = GangKey("default", "train")
Put = tuple[Declaration, str, bool, bool, bool]
"""What a pod declares, its node, whether it has succeeded, is being deleted, and is left to kube-scheduler."""

DECLARATIONS = st.builds(
    Declaration, st.just("train"), st.integers(0, 3), st.sampled_from((0.0, 60.0)), st.sampled_from(("", "rack", "row"))
)
PUTS = st.tuples(DECLARATIONS, st.sampled_from(("", "n1", "n2")), st.booleans(), st.booleans(), st.booleans())
EVENTS = st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), PUTS)), max_size=12)


def put(gang: Gang, name: str, now: Put) -> Pod:
    """Set the state of a pod of a gang, and return the pod."""
    declaration, node, has_succeeded, is_leaving, is_handed_over = now
    member = pod(name, node=node)
    member.metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if is_leaving else None
    member.spec.scheduler_name = HAND_OVER_NAME if is_handed_over else "tranche"
    gang.put(member, declaration, node=node, has_succeeded=has_succeeded)
    return member


def known(gang: Gang) -> tuple[object, ...]:
    """Return all that is known of a gang."""
    counts = (gang.size, gang.placed, dict(gang.by_node), gang.nodes, gang.succeeded, gang.waiting.keys())
    declared = (gang.timeout, gang.block, gang.disagreement)
    return (*counts, *declared, gang.state, gang.unready, gang.is_satisfied, gang.is_complete, gang.is_partial)


@given(EVENTS)
def test_gang_knows_its_present_pods(events: list[tuple[str, Put | None]]) -> None:
    """After any sequence of changes and deletions of its pods."""
    gang, present = Gang(KEY), dict[str, Put]()
    for name, now in events:
        if now is None:
            gang.forget(f"uid-{name}")
            present.pop(name, None)
        else:
            put(gang, name, now)
            present[name] = now
        fresh = Gang(KEY)
        for each, its in present.items():
            put(fresh, each, its)
        assert known(gang) == known(fresh)
        assert bool(gang) == bool(present)
