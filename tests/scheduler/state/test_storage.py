"""Storage objects reach the decisions, and wake pods where that may help them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from allocation.steps import finish
from scheduler.cycle.result import Scheduled
from scheduler.queue.queueing_hints import ClusterEvent
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, pod, state
from tests.scheduler.support.scheduling import cycle_of, forget, schedule
from tests.scheduler.support.storage import (
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    mounts,
    storage_class,
    volume,
)


def with_bound(*names: str, limit: int, **fields: Any) -> ClusterState:
    """Return a state of one node with a limit, and bound claims whose volumes a CSI driver attaches."""
    made = state("n1")
    made.storage.set_csi_node(csi_node("n1", csi_example_com=limit))
    for name in names:
        made.storage.set_volume(volume(name, handle=name, claim=name, claim_uid=f"uid-{name}", **fields))
        made.storage.set_claim(claim(name, volume=name))
    return made


def fits(made: ClusterState, *claims: str) -> bool:
    """Whether a pod with these claims would get a node; nothing is reserved, which would refresh what is cached."""
    asking = pod("asks", memory=1, volumes=mounts(*claims))
    return isinstance(finish(cycle_of(made).dry_run(asking)).result, Scheduled)


def test_a_changed_limit_counts_at_once() -> None:
    """Though the verdict of the node was cached for pods of this class."""
    made = with_bound("a", limit=0)
    assert not fits(made, "a")
    made.storage.set_csi_node(csi_node("n1", csi_example_com=1))
    assert fits(made, "a")
    made.storage.set_csi_node(csi_node("n1", csi_example_com=0))
    assert not fits(made, "a")
    made.storage.drop_csi_node(csi_node("n1"))
    assert fits(made, "a")


def test_a_volume_that_is_attached_already_needs_no_place() -> None:
    """The pods that share it count as one; a pod with another volume does not fit."""
    made = with_bound("a", "b", limit=1)
    made.set_pod(allocated("first", node="n1", memory=1, volumes=mounts("a")))
    assert fits(made, "a")
    assert not fits(made, "b")


def test_a_volume_attachment_counts_until_it_is_gone() -> None:
    """Its volume may still be attached though no pod uses it any more."""
    made = with_bound("a", "b", limit=1)
    made.storage.set_attachment(attachment("one", node="n1", volume="b"))
    assert not fits(made, "a")
    made.storage.drop_attachment(attachment("one", node="n1", volume="b"))
    assert fits(made, "a")


def test_a_volume_that_appears_later_is_counted_for_running_pods() -> None:
    """The order in which informers deliver objects does not matter."""
    made = with_bound("b", limit=1)
    made.set_pod(allocated("first", node="n1", memory=1, volumes=mounts("a")))
    assert fits(made, "b")
    made.storage.set_claim(claim("a", volume="a"))
    made.storage.set_volume(volume("a", handle="a", claim="a", claim_uid="uid-a"))
    assert not fits(made, "b")


@pytest.mark.parametrize(
    ("act", "is_heard"),
    [
        (lambda storage: storage.set_claim(claim("a")), True),
        (lambda storage: storage.set_claim(claim("a"), versioned(claim("a"))), False),
        (lambda storage: storage.set_claim(claim("a", size="20Gi"), claim("a")), True),
        (lambda storage: storage.drop_claim(claim("a")), False),
        (lambda storage: storage.set_volume(volume("pv")), True),
        (lambda storage: storage.drop_volume(volume("pv")), False),
        (lambda storage: storage.set_class(storage_class()), True),
        (lambda storage: storage.set_csi_node(csi_node("n1", x=1)), True),
        (lambda storage: storage.drop_csi_node(csi_node("n1")), True),
        (lambda storage: storage.set_driver(csi_driver()), True),
        (lambda storage: storage.drop_driver(csi_driver()), True),
        (lambda storage: storage.set_capacity(capacity("c", size="1")), True),
        (lambda storage: storage.set_capacity(capacity("c", size="2"), capacity("c", size="1")), True),
        (lambda storage: storage.set_capacity(capacity("c", size="1"), capacity("c", size="2")), False),
        (lambda storage: storage.drop_capacity(capacity("c", size="1")), False),
        (lambda storage: storage.set_attachment(attachment("one", node="n1", volume="pv")), False),
        (lambda storage: storage.drop_attachment(attachment("one", node="n1", volume="pv")), True),
    ],
)
def test_a_change_wakes_pods_only_if_it_may_help(act: Callable[[Any], None], is_heard: bool) -> None:  # noqa: FBT001
    """Every other change would cost the retries of all pods that wait for storage."""
    made = state("n1")
    heard: list[ClusterEvent] = []
    made.queue.notify = heard.append  # type: ignore[method-assign]
    act(made.storage)
    assert heard == [ClusterEvent.STORAGE_CHANGED] * is_heard


def test_what_a_pod_gives_back_wakes_the_others() -> None:
    """A pod that was rejected for want of a volume is tried again when an assumed one is free."""
    made = state("n1")
    made.storage.set_class(storage_class())
    made.storage.set_volume(volume("pv"))
    made.storage.set_claim(claim("a"))
    asking = pod("asks", memory=1, volumes=mounts("a"))
    assert isinstance(finish(schedule(made, asking)), Scheduled)
    heard: list[ClusterEvent] = []
    made.queue.notify = heard.append  # type: ignore[method-assign]
    forget(made, asking)
    assert ClusterEvent.STORAGE_CHANGED in heard


def versioned(item: Any) -> Any:
    """Return an object at an older version."""
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, resource_version="0"))
