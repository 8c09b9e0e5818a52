"""A node whose cards the ledger must not give out takes no pods, from the report on until DRA has given it back."""

from __future__ import annotations

import msgspec
import pytest

from allocation.allocation import Charge
from allocation.ledger.ledger import DRA_PREFIX, INSTANCE_PREFIX, LEASE_PREFIX
from cluster.gpu_node_status import Allocator, Drained, GpuNodeStatus
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import node, pod, state, status


def report(allocator: Allocator | None, *, drain: str = "", version: str = "1") -> GpuNodeStatus:
    """Return the report of an agent; without an allocator it was the ledger always."""
    reported = status("n1")
    reported.metadata.resource_version = version
    assert reported.status is not None
    reported.status.allocator = msgspec.UNSET if allocator is None else allocator
    if drain:
        reported.status.drain = drain
    return reported


def closed(made: ClusterState) -> str:
    """Return why the node takes no pods; empty if it does."""
    rejection = made.closed_nodes.now().get("n1")
    return rejection.code if rejection is not None else ""


@pytest.mark.parametrize(("allocator", "code"), [("draining", "NodeDraining"), ("dra", "AllocatedByDra")])
def test_node_of_another_allocator_is_closed(allocator: Allocator, code: str) -> None:
    """In the step in which the report is seen."""
    made = state("n1")
    assert closed(made) == ""
    made.agent_reports.set(report(allocator))
    assert closed(made) == code


def test_node_opens_when_its_slice_is_gone() -> None:
    """The report alone does not open it; one that changes meanwhile keeps it closed."""
    made = state("n1")
    made.agent_reports.set(report("dra"))
    made.agent_reports.set(report("ledger"))
    assert closed(made) == "NodeDraining"
    assert made.node_allocators.returning == {"n1"}
    made.agent_reports.set(report("draining", drain="d"))
    made.node_allocators.open("n1")
    assert closed(made) == "NodeDraining"
    made.agent_reports.set(report("ledger"))
    made.node_allocators.open("n1")
    assert closed(made) == ""
    made.agent_reports.set(report("ledger", version="2"))
    assert closed(made) == ""


def test_report_that_loses_its_allocator_does_not_open_the_node() -> None:
    """An older agent removes the field, and claims have cards as before; a new leader looks for the slice, too."""
    made = state("n1")
    made.agent_reports.set(report("dra"))
    made.agent_reports.set(report(None))
    assert made.node_allocators.returning == {"n1"}
    new = state("n1")
    new.agent_reports.set(report("ledger"))
    assert closed(new) == "NodeDraining"


def test_node_stays_closed_while_its_report_is_gone() -> None:
    """Its agent writes it again; if the node is gone as well, nothing of it is left."""
    made = state("n1")
    made.agent_reports.set(report("dra"))
    made.agent_reports.drop(report("dra"))
    assert closed(made) == "AllocatedByDra"
    made.agent_reports.set(GpuNodeStatus(report("dra").metadata))
    assert closed(made) == "AllocatedByDra"
    made.agent_reports.drop(report("dra"))
    made.drop_node(node("n1"))
    assert closed(made) == ""


def test_node_that_is_deleted_before_its_report_stays() -> None:
    """It may come back with the claims that it has."""
    made = state("n1")
    made.agent_reports.set(report("dra"))
    made.drop_node(node("n1"))
    assert closed(made) == "AllocatedByDra"


@pytest.mark.parametrize("uid", ["p", f"{LEASE_PREFIX}x", f"{DRA_PREFIX}team/c"])
def test_node_is_drained_when_nothing_has_its_cards(uid: str) -> None:
    """Pods, also those that are being bound, cards of a Lease, and claims of other drivers."""
    made = state("n1")
    made.ledger.assume(uid, "n1", (Charge("GPU-n1-0", 10, 0, 1),))
    made.agent_reports.set(report("draining", drain="d", version="7"))
    assert made.node_allocators.drained() == []
    assert made.node_allocators.drains
    made.ledger.release(uid)
    (drain,) = made.node_allocators.drained()
    assert (drain.node, drain.drain, drain.version, drain.confirmed) == ("n1", "d", "7", None)


def test_holds_do_not_keep_a_node_from_being_drained() -> None:
    """The pods that they are for get no card there any more."""
    made = state("n1")
    made.ledger.assume(f"{INSTANCE_PREFIX}x", "n1", (Charge("GPU-n1-0", 10, 0, 1),))
    made.agent_reports.set(report("draining", drain="d"))
    assert len(made.node_allocators.drained()) == 1


def test_uncounted_pod_keeps_a_node_from_being_drained() -> None:
    """It may use any card."""
    made = state("n1")
    unknown = pod("p", node="n1", memory=1)
    made.set_pod(unknown)
    made.agent_reports.set(report("draining", drain="d"))
    assert made.node_allocators.drained() == []
    made.drop_pod(unknown)
    assert len(made.node_allocators.drained()) == 1


def test_drain_shows_what_is_confirmed() -> None:
    """So that it is written once."""
    made = state("n1")
    reported = report("draining", drain="d")
    reported.spec.drained = Drained("d", "7/leader")
    made.agent_reports.set(reported)
    (drain,) = made.node_allocators.drained()
    assert drain.confirmed == Drained("d", "7/leader")
