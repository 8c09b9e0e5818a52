"""A Lease closes its card unless its holder has the card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation import names
from allocation.inventory import Card, NodeInventory
from allocation.ledger.card_table import SLOTS
from allocation.ledger.ledger import LEASE_PREFIX
from allocation.mig import MigInstance, Slices
from allocation.steps import finish
from cluster.lease import Lease, LeaseMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.fenced_api import with_token
from scheduler.leases.device_lease import DeviceLease, LeasedPod, epoch, planned
from scheduler.metrics.cards import Cards
from scheduler.state.comparison import differences
from tests.scheduler.support.builders import node, pod, state, status
from tests.scheduler.support.leasing import TOKEN, allocation, claiming, lease_of
from tests.scheduler.support.scheduling import forget, schedule

if TYPE_CHECKING:
    from scheduler.state.cluster_state import ClusterState

PODS = ("a", "b")


def uses(made: ClusterState, card: int) -> bool:
    """Return whether a pod that accepts one card only gets it."""
    asks = pod("asks", memory=1, annotations={names.USE_UUIDS: f"GPU-n1-{card}"})
    result = finish(schedule(made, asks))
    if isinstance(result, Scheduled):
        forget(made, asks)
    return isinstance(result, Scheduled)


def test_a_lease_without_its_pod_closes_the_card_until_its_deletion_is_seen() -> None:
    """Another scheduler's Lease, or one that a crash has left: no pod gets the card."""
    made = state("n1")
    assert uses(made, 0)
    made.set_lease(lease_of("a"))
    assert (uses(made, 0), uses(made, 1)) == (False, True)
    assert [each.name for each in made.device_leases.unwanted()] == ["gpu-n1-0"]
    made.drop_lease(lease_of("a"))
    assert uses(made, 0)
    assert made.device_leases.unwanted() == []


def test_the_lease_of_the_pod_that_has_the_card_closes_nothing() -> None:
    """The pod itself holds the card in the ledger; in whatever order pod and Lease are seen."""
    for order in (1, -1):
        made = state("n1")
        events = [
            lambda made=made: made.set_lease(lease_of("a")),
            lambda made=made: made.set_pod(claiming("a", 0)),
        ]
        for event in events[::order]:
            event()
        assert made.device_leases.unwanted() == []
        assert made.ledger.reservation(LEASE_PREFIX + "gpu-n1-0") is None
        assert made.device_leases.missing(made.device_leases.pods()[0]) == set()


def test_a_pod_that_ends_leaves_its_card_closed_until_its_lease_is_gone() -> None:
    """The Lease is then unwanted, and the queue is notified when the card opens."""
    made = state("n1")
    made.set_pod(claiming("a", 0))
    made.set_lease(lease_of("a"))
    made.device_leases.changed.clear()
    made.drop_pod(claiming("a", 0))
    assert made.device_leases.changed.is_set()
    assert not uses(made, 0)
    made.drop_lease(lease_of("a"))
    assert uses(made, 0)


def test_a_forgotten_pod_leaves_its_cards_closed() -> None:
    """Its Binding failed: its Leases still exist."""
    made = state("n1")
    waits = pod("a", memory=1000, annotations={names.USE_UUIDS: "GPU-n1-0"})
    assert isinstance(finish(schedule(made, waits)), Scheduled)
    made.set_lease(lease_of("a"))
    assert made.device_leases.unwanted() == []
    forget(made, waits)
    assert [each.holder for each in made.device_leases.unwanted()] == ["uid-a"]
    assert isinstance(finish(schedule(made, waits)), Unschedulable)


def test_a_card_whose_name_another_pod_has_is_closed_until_that_lease_is_gone() -> None:
    """Indexes shifted: the Lease of card 1 has the name that card 0 has now."""
    made = state("n1")
    made.set_pod(claiming("a", 1))
    made.set_lease(lease_of("a", uuid="GPU-n1-1"))
    assert uses(made, 0)
    made.device_leases.close("gpu-n1-0", node="n1", card="GPU-n1-0")
    assert not uses(made, 0)
    assert made.device_leases.unwanted() == []
    made.drop_lease(lease_of("a", uuid="GPU-n1-1"))
    assert uses(made, 0)


def test_a_running_pod_without_its_lease_is_missing_one() -> None:
    """For exclusive claims and MIG instances; shared cards have no Leases."""
    made = state("n1")
    made.set_pod(claiming("a", 0, 1))
    made.set_lease(lease_of("a", card=1))
    (held,) = made.device_leases.pods()
    assert made.device_leases.missing(held) == {"GPU-n1-0"}
    shared = claiming("b", 0)
    shared.metadata.annotations[names.ALLOCATION] = shared.metadata.annotations[names.ALLOCATION].replace(
        "Exclusive", "Shared"
    )
    made.drop_pod(claiming("a", 0, 1))
    made.set_pod(shared)
    assert made.device_leases.pods() == []


async def test_a_closed_card_counts_as_used_by_nobody() -> None:
    """In the metrics of cards and in the comparison of the ledger with its pods."""
    made = state("n1")
    made.set_lease(lease_of("a"))
    assert made.ledger.used[SLOTS].sum() > 0
    assert finish(differences(made, [])) == []  # type: ignore[arg-type]  # no pods
    lines = "".join([each async for each in Cards(lambda: made.ledger).text()]).splitlines()
    counts = [line.rpartition(" ")[2] for line in lines if line.startswith("hami_gpu_shared_count{")]
    assert counts == ["0", "0"]


def test_a_lease_of_a_node_that_comes_later_closes_its_card() -> None:
    """The Leases are listed before the cards are known, or the node returns."""
    made = state()
    made.set_lease(lease_of("a"))
    made.set_node(node("n1"))
    made.agent_reports.set(status("n1"))
    assert (uses(made, 0), uses(made, 1)) == (False, True)


@pytest.mark.parametrize("labels", [None, {"gpu.scheduling/managed": "false"}])
def test_only_leases_with_our_label_are_of_cards(labels: dict[str, str] | None) -> None:
    """A heartbeat of an agent of an early version has the same prefix."""
    body = {"metadata": {"name": "gpu-n1-0", "annotations": {"gpu.scheduling/card": "GPU-n1-0"}}}
    if labels is not None:
        body["metadata"]["labels"] = labels
    assert DeviceLease.of(msgspec.convert(body, Lease)) is None


def test_a_lease_says_what_it_is_for() -> None:
    """What is written is what is read: holder, card, node, pod and token."""
    leased = LeasedPod("team", "p" * 100, "uid-1", allocation(3))
    (plan,) = planned(leased, None)
    body = with_token(plan.body(unix=1.5), TOKEN)
    assert body["metadata"]["name"] == "gpu-n1-3"
    assert body["metadata"]["labels"]["gpu.scheduling/managed"] == "true"
    assert body["metadata"]["labels"]["gpu.scheduling/fenced"] == "true"
    assert len(body["metadata"]["labels"]["gpu.scheduling/pod"]) == 63
    assert body["metadata"]["annotations"]["gpu.scheduling/claim"] == "claim"
    assert body["spec"] == {
        "holderIdentity": "uid-1",
        "leaseDurationSeconds": 60,
        "renewTime": "1970-01-01T00:00:01.500000Z",
        "acquireTime": "1970-01-01T00:00:01.500000Z",
    }
    read = DeviceLease.of(msgspec.convert(body, Lease))
    assert read is not None
    assert (read.holder, read.token, read.epoch) == ("uid-1", TOKEN, 1)
    assert (read.namespace, read.pod, read.node, read.card) == ("team", "p" * 100, "n1", "GPU-n1-3")


def test_the_lease_of_a_mig_instance_is_named_by_its_first_slice() -> None:
    """Two instances of one card have two Leases; without a known place the UUID names them."""
    uuids = ("MIG-a", "MIG-b", "MIG-c")
    cards = tuple(
        Card(uuid, 2, 1000, mode="mig", instance=MigInstance("GPU-n1-2", "1g.10gb", slices))
        for uuid, slices in zip(uuids, (Slices(0, 1), Slices(4, 1), None), strict=True)
    )
    made = allocation(*range(3), exclusivity="MIG")
    shares = tuple(
        msgspec.structs.replace(share, uuid=uuid, index=2, parent="GPU-n1-2")
        for share, uuid in zip(made.containers["main"], uuids, strict=True)
    )
    leased = LeasedPod("team", "p", "uid-1", msgspec.structs.replace(made, containers={"main": shares}))
    plan = [each.name for each in planned(leased, NodeInventory("n1", cards))]
    assert plan[:2] == ["gpu-n1-2.0", "gpu-n1-2.4"]
    assert plan[2].startswith("gpu-n1-2.u")
    assert len({each.name for each in planned(leased, None)}) == 3


_EVENTS = st.lists(
    st.tuples(st.sampled_from(("lease", "gone", "runs", "ends")), st.sampled_from(PODS), st.integers(0, 1)),
    max_size=30,
)


@given(_EVENTS)
def test_a_card_is_closed_exactly_while_its_lease_is_unwanted(events: list[tuple[str, str, int]]) -> None:
    """Compared with a model, over any order of events; the ledger equals the sum of its reservations."""
    made = state("n1")
    leases: dict[int, str] = {}
    running: dict[str, int] = {}
    for number, (event, name, card) in enumerate(events):
        if event == "lease":
            made.set_lease(lease_of(name, card=card, uid=str(number)))
            leases[card] = name
        elif event == "gone" and card in leases:
            found = made.device_leases.get(f"gpu-n1-{card}")
            assert found is not None
            made.drop_lease(Lease(LeaseMeta(name=found.name, uid="older")))
            assert made.device_leases.get(found.name) is found, "another Lease has the name"
            made.drop_lease(Lease(LeaseMeta(name=found.name, uid=found.uid)))
            del leases[card]
        elif event == "runs" and card not in running.values() and name not in running:
            made.set_pod(claiming(name, card))
            running[name] = card
        elif event == "ends" and name in running:
            made.drop_pod(claiming(name, running.pop(name)))
        unwanted = {card for card, holder in leases.items() if running.get(holder) != card}
        assert {each.name for each in made.device_leases.unwanted()} == {f"gpu-n1-{card}" for card in unwanted}
        closed = {card for card in range(2) if made.ledger.reservation(f"{LEASE_PREFIX}gpu-n1-{card}") is not None}
        assert closed == unwanted


def test_a_lease_that_changes_its_holder_is_missing_to_the_former_one() -> None:
    """Its name is that of the card, which the pod still has, so a second one cannot be created."""
    made = state("n1")
    made.set_pod(claiming("a", 0))
    made.set_lease(lease_of("a"))
    made.set_lease(lease_of("b"))
    (held,) = made.device_leases.pods()
    assert made.device_leases.missing(held) == {"GPU-n1-0"}
    unheld = lease_of("a")
    unheld.spec = msgspec.structs.replace(unheld.spec, holder_identity=None)
    made.set_lease(unheld)
    assert [each.pod_reference for each in made.device_leases.unwanted()] == ["default/a"]
    assert [each.holder for each in made.device_leases] == [""]


@pytest.mark.parametrize(("token", "expected"), [("12/scheduler-a", 12), ("", 0), ("scheduler/1", 0), ("-1/a", 0)])
def test_a_lease_without_the_token_of_a_leader_is_older_than_all(token: str, expected: int) -> None:
    """Any leader may replace it if its pod is gone."""
    assert epoch(token) == expected
