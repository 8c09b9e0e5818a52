"""Which cards a container gets from the agent's plugin, and which containers must not start."""

import json

import pytest

from agent.nri.cards import delivered
from agent.refusal import LONGEST, Refusal
from allocation import names
from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.wire import environment

TWO = Allocation("n1", {"main": (CardShare("GPU-a", 0, 3000, 300), CardShare("GPU-b", 1, 3000, 300))})


def annotations(allocation: Allocation = TWO, **changed: str) -> dict[str, str]:
    """Return the annotations of a pod that was bound to a node with the agent's plugin."""
    return environment.annotations(allocation, "nri") | changed


def cards_of(pod: str, found: dict[str, str], container: str, environ: list[str]) -> tuple[str, ...]:
    """Return the CDI names of a container's cards."""
    got = delivered(pod, found, container, environ)
    return () if got is None else environment.host_names(got.shares)


def variables(found: dict[str, str], container: str = "main", cards: int = 2) -> list[str]:
    """Return the environment of a container that asks for cards, as the kubelet resolves it."""
    resolved = environment.resolve(environment.references(container, cards), found)
    return ["PATH=/bin", *(f"{name}={value}" for name, value in resolved.items())]


def test_a_container_gets_the_cards_of_its_allocation_and_no_other_of_the_pod() -> None:
    """By the names of the node's CDI specification; a container without cards in the allocation gets none."""
    found = annotations()
    assert cards_of("a/p", found, "main", variables(found)) == ("nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b")
    assert cards_of("a/p", found, "other", ["NVIDIA_VISIBLE_DEVICES=void"]) == ()
    assert cards_of("a/p", {}, "main", ["PATH=/bin"]) == ()


@pytest.mark.parametrize(
    "changed",
    [{names.ISOLATION: "x" * 100_000}, {names.ALLOCATION: json.dumps({"x" * 100_000: 1})}],
    ids=["isolation", "allocation"],
)
def test_a_refusal_quotes_no_more_of_an_annotation_than_a_person_reads(changed: dict[str, str]) -> None:
    """The kubelet writes it into the pod's status, and anybody may write the annotations where no policy is."""
    with pytest.raises(Refusal, match="its allocation cannot be read") as refusal:
        delivered("a/p", annotations() | changed, "main", [])
    assert len(str(refusal.value)) <= LONGEST


def test_nvidias_runtime_adds_nothing() -> None:
    """Where it is the default runtime, a container must not have cards from both."""
    assert "NVIDIA_VISIBLE_DEVICES=void" in variables(annotations())


@pytest.mark.parametrize("delivery", ["cdi", "env", "nvidia-nri"])
def test_pods_that_were_bound_in_another_mode_are_left_to_it(delivery: str) -> None:
    """A node whose mode changes has pods of both; a card must not be added twice."""
    found = environment.annotations(TWO, delivery)  # type: ignore[arg-type]  # of a list of modes
    assert cards_of("a/p", found, "main", variables(found)) == ()


def test_a_container_that_asks_for_a_card_and_has_no_allocation_is_refused() -> None:
    """Its references resolve to nothing, and the message says what to do."""
    with pytest.raises(Refusal, match=r"pod a/p: container main asks for a GPU, and the pod has no allocation.*Delete"):
        cards_of("a/p", {}, "main", variables({}))
    found = annotations()
    with pytest.raises(Refusal, match="container other asks for a GPU, and the pod's allocation has none for it"):
        cards_of("a/p", found, "other", variables(found, container="other"))


def test_an_allocation_that_cannot_be_read_starts_no_container() -> None:
    """The plugin does not guess."""
    found = annotations() | {names.ALLOCATION: "{"}
    with pytest.raises(Refusal, match="its allocation cannot be read"):
        cards_of("a/p", found, "main", variables(found))


@pytest.mark.parametrize("isolation", Isolation)
def test_the_isolation_is_that_which_admission_wrote(isolation: Isolation) -> None:
    """A pod without the annotation has none."""
    found = annotations() | ({names.ISOLATION: isolation.value} if isolation is not Isolation.NONE else {})
    got = delivered("a/p", found, "main", variables(found))
    assert got is not None
    assert got.isolation is isolation


def test_an_unknown_isolation_starts_no_container() -> None:
    """An older agent must not start a container whose limits it cannot enforce."""
    found = annotations() | {names.ISOLATION: "newer"}
    with pytest.raises(Refusal, match="gpu.scheduling/isolation.*newer"):
        delivered("a/p", found, "main", variables(found))


def test_an_own_variable_of_a_user_does_not_look_like_a_missing_allocation() -> None:
    """Only all references together, each empty, are admission's."""
    assert cards_of("a/p", {}, "main", ["NVIDIA_VISIBLE_DEVICES=", "CUDA_VISIBLE_DEVICES="]) == ()
