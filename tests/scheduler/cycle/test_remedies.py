"""The event and the explanation of a pod that asks for what no card has name the existing cards."""

from typing import Any

import pytest

from allocation.inventory import Card, NodeInventory
from allocation.names import AVOID_TYPES, MODE, USE_TYPES
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.cycle.result import Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.scheduling import schedule

MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA L4")


def cluster(*models: str) -> ClusterState:
    """Return a cluster with a node for each model; the n-th card has n times 10,000 MiB."""
    made = state()
    for number, model in enumerate(models, start=1):
        name = f"n{number}"
        made.set_node(node(name))
        card = Card(f"GPU-{name}", 0, memory_mib=10_000 * number, model=model)
        made.agent_reports.set(GpuNodeStatus(ObjectMeta(name=name), status=status_of(NodeInventory(name, (card,)))))
    return made


def note(made: ClusterState, **fields: Any) -> str:
    """Return the event note of a waiting pod, which its explanation repeats."""
    pending = pod("a", **fields)
    (hint,) = explained(made, pending).hints
    decision = finish(schedule(made, pending))
    assert isinstance(decision, Unschedulable)
    assert decision.note.endswith(f"; {hint}")
    return decision.note


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        (
            {USE_TYPES: "H100"},
            'use-gputype "h100" accepts no model in this cluster, which has NVIDIA A100-SXM4-80GB, NVIDIA L4',
        ),
        ({AVOID_TYPES: "nvidia"}, 'nvidia.com/nouse-gputype "nvidia" accepts no model in this cluster'),
        (
            {USE_TYPES: "L4", MODE: "mps"},
            '"l4" and nvidia.com/vgpu-mode "mps" accept no model in this cluster, which has NVIDIA A100-SXM4-80GB (',
        ),
    ],
)
def test_a_type_that_no_card_has_is_named_with_the_existing_models(annotations: dict[str, str], text: str) -> None:
    """The hint has the annotation, its value, and the models."""
    assert text in note(cluster(*MODELS), memory=1, annotations=annotations)


def test_a_type_that_some_cards_have_is_named_with_both() -> None:
    """The hint has the models that it accepts, which may be full, and those that it does not."""
    made = cluster(*MODELS)
    made.set_node(node("n2", spec={"unschedulable": True}))
    text = note(made, memory=1, annotations={USE_TYPES: "l4"})
    assert 'nvidia.com/use-gputype "l4" accepts NVIDIA L4, not NVIDIA A100-SXM4-80GB' in text


def test_memory_that_no_card_has_names_the_largest_card() -> None:
    """With the container that asks for it; memory that only other pods use gets no hint."""
    made = cluster(*MODELS)
    assert note(made, memory=20_001).endswith(
        "container main asks for 20001 MiB of one card; the largest card in this cluster has 20000 MiB (NVIDIA L4)"
    )
    decision = finish(schedule(made, pod("b", memory=20_000)))
    again = finish(schedule(made, pod("c", memory=20_000)))
    assert not isinstance(decision, Unschedulable)
    assert isinstance(again, Unschedulable)
    assert "largest" not in again.note


def test_a_hint_names_ten_models_at_most() -> None:
    """A large fleet has more models than a reader wants."""
    text = note(cluster(*(f"M{number:02}" for number in range(14))), memory=1, annotations={USE_TYPES: "H100"})
    assert text.endswith("M08, M09, and 4 more")


def asking(cards: int) -> Pod:
    """Return a pod that asks for a number of cards."""
    limits = {"nvidia.com/gpu": str(cards), "nvidia.com/gpumem": "600"}
    return pod("p", containers=[{"name": "main", "resources": {"limits": limits}}])


def test_more_cards_than_any_node_has_names_the_largest_node() -> None:
    """A pod gets its cards from one node; where nodes are only full there is no such hint."""
    made = state("n1", "n2", cards=2)
    hint = "container main asks for 3 cards of one node; the largest node in this cluster is n1 with 2"
    assert explained(made, asking(3)).hints == (hint,)
    unschedulable = finish(schedule(made, asking(3)))
    assert isinstance(unschedulable, Unschedulable)
    assert hint in unschedulable.note
    for name in ("n1", "n2"):
        made.set_pod(allocated(f"on-{name}", node=name, memory=900))
    assert explained(made, asking(2)).outcome == "waits"
    assert explained(made, asking(2)).hints == ()


def test_a_label_that_no_node_has_is_named() -> None:
    """The others of the selector are not; the values that nodes have are shown by kubectl, which knows the user."""
    made = state("n1")
    selector = {"kubernetes.io/hostname": "n1", "gpu-type": "a100"}
    hints = explained(made, pod("p", memory=10, nodeSelector=selector)).hints
    assert hints == ("no node has label gpu-type: a100 of spec.nodeSelector; see 'kubectl get nodes -L gpu-type'",)
