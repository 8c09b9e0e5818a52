"""Pods of applications in the cycle: what wakes them, and whose cards they get."""

import msgspec
import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import SHARE_MODE_PREFIX
from allocation.settings import BindingsMode
from allocation.steps import finish
from allocation.wire import record
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Node, Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding, settings
from tests.scheduler.support.builders import node, pod, state
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.popping import due
from tests.scheduler.support.scheduling import schedule
from tests.scheduler.support.worlds import bound

MEMORY_SLICING, TIME_SLICING, EXCLUSIVE = "1", "2", "0"


def cluster(mode: BindingsMode = "required", *, share_mode: str = MEMORY_SLICING) -> ClusterState:
    """Return a cluster of the nodes n0 and n1 with two cards each, which pods share as `share_mode` says."""
    made = state(settings=settings(mode))
    for name in ("n0", "n1"):
        made.set_node(sharing(name, share_mode))
        cards = tuple(Card(f"GPU-{name}-{index}", index, 1000) for index in range(2))
        status = status_of(NodeInventory(name, cards))
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name, resource_version="1"), status, Spec(name)))
    return made


def sharing(name: str, share_mode: str) -> Node:
    """Return a node with the annotations of its two cards."""
    annotations = {f"{SHARE_MODE_PREFIX}GPU-{name}-{index}": share_mode for index in range(2)}
    return node(name, metadata={"name": name, "labels": {}, "annotations": annotations})


async def rejected(made: ClusterState, asks: Pod) -> str:
    """Schedule a pod that does not fit, and put it back into the queue; return the reasons."""
    made.set_pod(asks)
    entry = await due(made.queue)
    assert entry is not None
    result = finish(schedule(made, entry.pod))
    assert isinstance(result, Unschedulable), result
    made.queue.add_unschedulable(entry, result)
    assert await due(made.queue) is None, "nothing has happened yet"
    return result.note


async def cards_of_next(made: ClusterState) -> set[str]:
    """Schedule the pod that is due; return its cards, or nothing if no pod is due."""
    entry = await due(made.queue)
    return cards_of(placed(made, entry.pod)) if entry is not None else set()


def placed(made: ClusterState, asks: Pod) -> Pod:
    """Schedule and bind a pod; return it as it runs."""
    made.set_pod(asks)
    result = finish(schedule(made, asks))
    assert isinstance(result, Scheduled), result
    running = bound(asks, result)
    made.set_pod(running, asks)
    return running


def cards_of(running: Pod) -> set[str]:
    """Return the cards that are recorded in a pod."""
    allocation = record.of_annotations(running.metadata.annotations)
    assert allocation is not None
    return {share.uuid for shares in allocation.containers.values() for share in shares}


# ---- what wakes a pod ------------------------------------------------------------------------------------------------


async def test_a_label_alone_has_a_waiting_pod_scheduled_again() -> None:
    """An application service may label a pod after it was created."""
    made = cluster()
    made.bindings.set(gpu_binding("b", "GPU-n1-1", owner="alice"))
    plain = pod("a", memory=100)
    assert (await rejected(made, plain)).startswith("NoOwnerApplication: pod has no owner application")
    foreign = app_pod("a", owner="bob")
    made.set_pod(foreign, plain)
    entry = await due(made.queue)
    assert entry is not None
    result = finish(schedule(made, entry.pod))
    assert isinstance(result, Unschedulable)
    assert result.note.startswith("NoGpuBinding: no card bound to app comfyui of bob in namespace default")
    made.queue.add_unschedulable(entry, result)
    made.set_pod(app_pod("a", owner="alice"), foreign)
    assert await cards_of_next(made) == {"GPU-n1-1"}


async def test_a_binding_wakes_the_pods_of_its_application_and_no_others() -> None:
    """Whatever their owners are: a legacy binding is for all of them."""
    made = cluster()
    for asks in (app_pod("a", owner="alice"), app_pod("b", owner="bob"), app_pod("o", "ollama"), pod("p", memory=1)):
        await rejected(made, asks)
    made.bindings.set(gpu_binding("b", "GPU-n0-0", owner="alice"))
    woken = [await due(made.queue) for _ in range(3)]
    assert [each and each.pod.metadata.name for each in woken] == ["a", "b", None]


async def test_a_binding_that_is_created_again_is_read_again() -> None:
    """Olares changes bindings by deleting and creating them: the pod gets the new card, not the old one."""
    made = cluster()
    first, second = gpu_binding("b", "GPU-n0-0", memory="2000"), gpu_binding("b", "GPU-n1-0", memory="500")
    made.bindings.set(first)
    assert "CardInsufficientMemory" in await rejected(made, app_pod("a"))
    made.bindings.drop(first)
    entry = await due(made.queue)
    assert entry is not None
    gone = finish(schedule(made, entry.pod))
    assert isinstance(gone, Unschedulable)
    assert gone.note.startswith("NoGpuBinding")
    made.queue.add_unschedulable(entry, gone)
    made.bindings.set(second)
    assert await cards_of_next(made) == {"GPU-n1-0"}
    held = made.ledger.reservation("uid-a")
    assert held is not None
    assert [charge.memory_mib for charge in held.charges] == [500]


async def test_a_pod_whose_claim_differs_from_its_bindings_is_tried_again_when_one_changes() -> None:
    """It is held with the words in which admission refuses it, as long as no binding agrees."""
    made = cluster()
    mine = claim("mine", exclusivity="Shared", memoryMiB=300)
    made.set_claim(mine)
    made.bindings.set(gpu_binding("b", "GPU-n0-0", memory="500"))
    held = await rejected(made, claiming("a", mine, labels=app_labels()))
    assert held.startswith("PodHeld: spec.devices.memoryMiB of GpuClaim mine holds '300': GPUBinding b gives app")
    made.bindings.set(gpu_binding("b", "GPU-n0-0", memory="300"))
    assert await cards_of_next(made) == {"GPU-n0-0"}


async def test_a_change_of_the_share_mode_wakes_a_waiting_pod() -> None:
    """A card that is time-sliced now takes the pod that found too little memory on it."""
    made = cluster()
    made.bindings.set(gpu_binding("b", "GPU-n0-0", memory="2000"))
    assert "CardInsufficientMemory" in await rejected(made, app_pod("a"))
    made.set_node(sharing("n0", TIME_SLICING), sharing("n0", MEMORY_SLICING))
    assert await cards_of_next(made) == {"GPU-n0-0"}


@pytest.mark.parametrize("change", ["deleted", "finished", "relabelled"])
async def test_a_pod_that_gives_up_its_card_wakes_the_next_one(change: str) -> None:
    """The card is consumed until no other pod of the application has it."""
    made = cluster()
    made.bindings.set(gpu_binding("b", "GPU-n0-0"))
    running = placed(made, app_pod("first", policy="single"))
    note = await rejected(made, app_pod("second", policy="single"))
    assert "0 of 1 cards bound to app comfyui left, 1 needed; in use: GPU-n0-0 (pod default/first)" in note
    replace = msgspec.structs.replace
    match change:
        case "deleted":
            made.drop_pod(running)
        case "finished":
            made.set_pod(replace(running, status=replace(running.status, phase="Succeeded")), running)
        case _:
            made.set_pod(replace(running, metadata=replace(running.metadata, labels=app_labels("ollama"))), running)
    assert await cards_of_next(made) == {"GPU-n0-0"}


async def test_a_pod_that_is_not_bound_wakes_the_next_one() -> None:
    """Its Binding failed, so its card is not consumed after all."""
    made = cluster()
    made.bindings.set(gpu_binding("b", "GPU-n0-0"))
    first = app_pod("first", policy="single")
    made.set_pod(first)
    assert await due(made.queue) is not None
    assert isinstance(finish(schedule(made, first)), Scheduled)
    await rejected(made, app_pod("second", policy="single"))
    made.forget(first.uid)
    assert await cards_of_next(made) == {"GPU-n0-0"}


# ---- whose cards -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "labelled", "plain"),
    [
        ("off", {"GPU-n0-0"}, {"GPU-n0-0"}),
        ("labelled", {"GPU-n1-1"}, {"GPU-n0-0"}),
        ("required", {"GPU-n1-1"}, None),
    ],
)
def test_the_mode_says_which_pods_are_bound(mode: BindingsMode, labelled: set[str], plain: set[str] | None) -> None:
    """Mode off ignores labels and bindings; mode labelled ignores pods without the label."""
    made = cluster(mode)
    made.bindings.set(gpu_binding("b", "GPU-n1-1"))
    running = placed(made, app_pod("a"))
    assert cards_of(running) == labelled
    made.drop_pod(running)
    if plain is not None:
        assert cards_of(placed(made, pod("p", memory=100))) == plain
    else:
        result = finish(schedule(made, pod("p", memory=100)))
        assert isinstance(result, Unschedulable)
        assert result.reasons == {"NoOwnerApplication"}


async def test_two_users_of_an_application_never_get_each_others_card() -> None:
    """Neither while both have a binding, nor when one of them has lost it."""
    made = cluster()
    of_alice = gpu_binding("alice", "GPU-n0-0", owner="alice", namespace="ns-a")
    made.bindings.set(of_alice)
    made.bindings.set(gpu_binding("bob", "GPU-n0-1", owner="bob", namespace="ns-b"))
    assert cards_of(placed(made, app_pod("a", owner="alice", namespace="ns-a"))) == {"GPU-n0-0"}
    assert cards_of(placed(made, app_pod("b", owner="bob", namespace="ns-b"))) == {"GPU-n0-1"}
    made.bindings.drop(of_alice)
    assert (await rejected(made, app_pod("a2", owner="alice", namespace="ns-a"))).startswith("NoGpuBinding")
    assert made.ledger.reservation("uid-a") is not None, "a pod keeps its card when the binding goes"


def test_an_exclusive_card_is_kept_from_everybody_by_the_record_of_its_pod() -> None:
    """A scheduler that starts now reads from the pod that no other pod may have the card."""
    made = cluster("labelled", share_mode=EXCLUSIVE)
    made.bindings.set(gpu_binding("b", "GPU-n0-0"))
    running = placed(made, app_pod("a"))
    fresh = cluster("labelled", share_mode=TIME_SLICING)
    fresh.set_pod(running)
    assert fresh.ledger.free(0, 0) == made.ledger.free(0, 0) == (0, 0, 0, 0)
    others = [cards_of(placed(fresh, pod(f"p{number}", memory=1))) for number in range(8)]
    assert all("GPU-n0-0" not in each for each in others)
