"""Pods of applications are explained by their GPUBindings: which cards, who has them, and why others do not count."""

from typing import Any

import pytest

from allocation.allocation import Allocation, CardShare
from allocation.names import ALLOCATION, CONSUME_POLICY
from allocation.steps import finish
from allocation.wire.record import encode
from scheduler.api import simulation
from scheduler.api.bindings_types import BindingsExplanation, BoundCardExplanation, OtherBinding
from scheduler.api.manifest_pod import SubmittedPod
from scheduler.api.namespaced import redaction
from scheduler.cycle.result import Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from scheduler.volumes.planned_pod import PlannedPod
from tests.scheduler.api.test_explanation import everything
from tests.scheduler.support.app_pods import app_labels, app_pod, gpu_binding, settings
from tests.scheduler.support.builders import allocated, node, pod, state
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import claiming
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preempting import evictions_of
from tests.scheduler.support.scheduling import cycle_of, schedule

TEAM = "default"
STATIC = encode(Allocation("n1", {"main": (CardShare("GPU-n1-0", 0, 100, 0),)}))


def site(*bindings: Any, require_namespace: bool = False, cards: int = 2, **modes: str) -> ClusterState:
    """Return two nodes with two cards each, and these bindings; `modes` are share modes by card of n1."""
    made = state("n1", "n2", cards=cards, settings=settings("labelled", require_namespace=require_namespace))
    annotations = {f"sharemode.gpu.bytetrade.io/GPU-n1-{card[1:]}": mode for card, mode in modes.items()}
    labels = {"kubernetes.io/hostname": "n1"}
    made.set_node(node("n1", metadata={"name": "n1", "labels": labels, "annotations": annotations}))
    for each in bindings:
        made.bindings.set(each)
    return made


def consumer(name: str, card: int, *, node: str = "n1", owner: str = "alice", namespace: str = TEAM) -> Pod:
    """Return a pod of the application that runs on a card."""
    labels = app_labels(owner=owner)
    return allocated(name, node=node, memory=10, card=card, labels=labels, namespace=namespace)


def test_bound_cards_are_shown_with_node_binding_memory_mode_and_consumers() -> None:
    """A card that no node reports has no node, and pods of another owner do not count as consumers."""
    made = site(
        gpu_binding("first", "GPU-n1-0", owner="alice", memory="400"),
        gpu_binding("second", "GPU-n1-1"),
        gpu_binding("lost", "GPU-x", owner="alice"),
        c0="1",
    )
    made.set_pod(consumer("runs", 1))
    made.set_pod(consumer("foreign", 0, owner="bob"))
    shown = explained(made, app_pod("a", owner="alice", policy="single"))
    assert shown.bindings == BindingsExplanation(
        "comfyui",
        "alice",
        TEAM,
        "single",
        (
            BoundCardExplanation("GPU-n1-0", "n1", "first", "memory-slicing", 400),
            BoundCardExplanation("GPU-n1-1", "n1", "second", "time-slicing", None, ("default/runs",)),
            BoundCardExplanation("GPU-x", "", "lost", "time-slicing"),
        ),
    )
    assert shown.answer == "would go to n1, card 0"
    assert [share.memory_mib for share in shown.shares] == [400]


def test_an_application_without_a_card_sees_why_the_other_bindings_do_not_count() -> None:
    """The closest one comes first; a binding of another application is not listed."""
    made = site(
        gpu_binding("for-bob", "GPU-n1-0", owner="bob", namespace="bob-ns"),
        gpu_binding("elsewhere", "GPU-n1-1", owner="alice", namespace="other-ns"),
        gpu_binding("unselected", "GPU-n2-0", namespace=TEAM, podSelector={"matchLabels": {"gpu": "yes"}}),
        gpu_binding("selectorless", "GPU-n2-1", namespace=TEAM, podSelector=None),
        gpu_binding("open", "GPU-n1-0"),
        gpu_binding("unreadable", "GPU-n2-1", namespace=TEAM, memory="24Q4"),
        gpu_binding("ollama", "GPU-n2-1", app="ollama"),
        require_namespace=True,
    )
    waiting = app_pod("a", owner="alice")
    shown = explained(made, waiting)
    assert (shown.outcome, shown.nodes) == ("waits", ())
    assert shown.answer.startswith("waits: NoGpuBinding: no card bound to app comfyui of alice in namespace default")
    assert shown.bindings is not None
    assert shown.bindings.cards == ()
    *single, for_bob = shown.bindings.others
    assert single[:2] == [
        OtherBinding("elsewhere", "GPU-n1-1", ("is for namespace other-ns",)),
        OtherBinding("open", "GPU-n1-0", ("names no namespace, which allocation.bindings.require_namespace demands",)),
    ]
    assert [(each.name, each.why[0].partition(":")[0]) for each in single[2:]] == [
        ("selectorless", "has no podSelector, so it selects no pod"),
        ("unreadable", "has a memory that cannot be read"),
        ("unselected", "does not select the pod's labels"),
    ]
    assert for_bob == OtherBinding("for-bob", "GPU-n1-0", ("is for owner bob", "is for namespace bob-ns"))
    (hint,) = shown.hints
    assert "GPUBinding with appName comfyui, owner alice and namespace default" in hint
    made.set_pod(waiting)
    decision = finish(schedule(made, waiting))
    assert isinstance(decision, Unschedulable)
    assert decision.note == shown.note


def test_an_application_of_many_users_shows_the_closest_bindings() -> None:
    """One per user would bury the one that was meant."""
    users = [
        gpu_binding(f"b-{number:03}", f"GPU-{number}", owner=f"user-{number}", namespace="x") for number in range(50)
    ]
    made = site(*users, gpu_binding("meant", "GPU-n1-0", owner="alcie"))
    shown = explained(made, app_pod("a", owner="alice")).bindings
    assert shown is not None
    assert [each.name for each in shown.others] == ["meant", *(f"b-{number:03}" for number in range(19))]


def test_users_of_a_namespace_see_their_grants_and_nobody_elses_bindings() -> None:
    """Consumers are pods of the same namespace, so they stay."""
    made = site(gpu_binding("secret-bob", "GPU-n1-0", owner="bob"), gpu_binding("own", "GPU-n1-1", owner="alice"))
    made.set_pod(consumer("runs", 1))
    made.set_pod(consumer("secret-pod", 0, owner="bob", namespace="secret-ns"))
    full = explained(made, app_pod("a", owner="alice"))
    shown = redaction.of_explanation(full)
    assert shown.bindings == full.bindings
    assert shown.bindings is not None
    assert shown.bindings.cards[0].consumed_by == ("default/runs",)
    puzzled = explained(made, app_pod("b", owner="carol"))
    assert "secret-bob" in repr(puzzled)
    for each in (shown, redaction.of_explanation(puzzled)):
        assert "secret" not in repr(each)


def test_a_pod_that_belongs_to_no_application_waits_and_has_no_bindings() -> None:
    """The note has the label that is missing."""
    made = state("n1", settings=settings("required"))
    shown = explained(made, pod("a", memory=100))
    assert (shown.outcome, shown.bindings, shown.nodes) == ("waits", None, ())
    assert shown.note.startswith("NoOwnerApplication: ")
    assert "applications.app.bytetrade.io/name" in shown.note


@pytest.mark.parametrize(
    "waiting",
    [
        pytest.param(pod("a", memory=100), id="no application"),
        pytest.param(pod("a", labels=app_labels()), id="no GPU"),
        pytest.param(app_pod("a", schedulerName="other"), id="another scheduler"),
        pytest.param(app_pod("a", node="n1", phase="Succeeded"), id="finished"),
        pytest.param(app_pod("a", annotations={ALLOCATION: STATIC}), id="static allocation"),
    ],
)
def test_pods_that_bindings_do_not_concern_show_none(waiting: Pod) -> None:
    """Whatever bindings exist."""
    assert explained(site(gpu_binding("b", "GPU-n1-0")), waiting).bindings is None


def test_bindings_that_are_off_are_not_shown() -> None:
    """Nobody reads them."""
    assert explained(state("n1"), app_pod("a")).bindings is None


def test_a_running_pod_shows_the_bindings_as_they_are_now() -> None:
    """It keeps its card when its binding is deleted; the other pods that have bound cards are named."""
    made = site(binding := gpu_binding("b", "GPU-n1-0"), gpu_binding("c", "GPU-n1-1"))
    for each in (runs := consumer("runs", 0, owner=""), consumer("twin", 1, owner="")):
        made.set_pod(each)
    before = explained(made, runs)
    made.bindings.drop(binding)
    after = explained(made, runs)
    for shown in (before, after):
        assert (shown.outcome, [share.uuid for share in shown.shares]) == ("bound", ["GPU-n1-0"])
    assert before.bindings is not None
    assert after.bindings is not None
    assert [(card.uuid, card.consumed_by) for card in before.bindings.cards] == [
        ("GPU-n1-0", ()),
        ("GPU-n1-1", ("default/twin",)),
    ]
    assert [card.uuid for card in after.bindings.cards] == ["GPU-n1-1"]


def test_a_claim_decides_how_many_bound_cards_a_pod_gets() -> None:
    """So its policy is single, whatever its labels say, as in the decision."""
    made = site(gpu_binding("b", "GPU-n1-0"), gpu_binding("c", "GPU-n1-1"))
    made.set_claim(one := gpu_claim("one"))
    shown = explained(made, claiming("a", one, labels=app_labels(policy="all")))
    assert shown.bindings is not None
    assert shown.bindings.policy == "single"
    assert len(shown.shares) == 1


def test_a_simulated_pod_is_judged_by_the_live_bindings() -> None:
    """It gets what a created one gets, and a diagnosis without a binding."""
    made = site(gpu_binding("b", "GPU-n1-1", owner="alice"))
    fits, waits = (
        finish(
            simulation.simulate(
                cycle_of(made), SubmittedPod(planned(app_pod("a", owner=owner)), ()), evictions=evictions_of(made)
            )
        )
        for owner in ("alice", "bob")
    )
    assert fits.gpu_scheduler_state.final_gpus == ("GPU-n1-1",)
    assert waits.error is not None
    assert waits.error.message.startswith("NoGpuBinding: no card bound to app comfyui of bob")
    assert waits.error.diagnosis.unschedulable_plugins == ("GPUBindings",)  # type: ignore[union-attr]  # it has one


def planned(each: Pod) -> PlannedPod:
    """Return a pod that does not exist yet."""
    each.metadata.uid = ""
    return PlannedPod.of(each, ())


def test_explaining_bindings_changes_no_state() -> None:
    """They are only read."""
    made = site(gpu_binding("b", "GPU-n1-0"))
    explained(made, pod("first", memory=1))
    before = everything(made)
    for each in (app_pod("a"), app_pod("b", app="none"), app_pod("c", annotations={CONSUME_POLICY: "single"})):
        explained(made, each)
        assert everything(made) == before
