"""What an administrator must see about bindings."""

import itertools

import pytest

from allocation.bindings.binding import Binding, BindingSpec, ShareMode
from allocation.label_selector import LabelSelector
from allocation.quantity import Quantity
from allocation.settings import BindingSettings
from cli.bindings import problems
from cli.bindings.bindings import note_of
from cli.bindings.report import KnownCard, Problem, ProblemType

REQUIRED = BindingSettings(mode="required")
ALL = LabelSelector()


def binding(
    name: str,
    *,
    app: str = "chat",
    owner: str = "alice",
    namespace: str = "ns-a",
    card: str = "GPU-1",
    memory: Quantity | None = None,
    selector: LabelSelector | None = ALL,
    created: str = "2026-01-01T00:00:00Z",
) -> Binding:
    """Return a binding without a problem."""
    return Binding(name, created, BindingSpec(card, app, owner, namespace, selector, memory))


def find(
    *bindings: Binding, mode: ShareMode | None = "time-slicing", settings: BindingSettings = REQUIRED
) -> tuple[Problem, ...]:
    """Return the problems where the only card is GPU-1 with 40960 MiB."""
    return problems.find(bindings, {"GPU-1": KnownCard("n1", 40960, mode)}, settings)


def types(*bindings: Binding, mode: ShareMode | None = "time-slicing") -> list[ProblemType]:
    """Return the types of the problems."""
    return [each.type for each in find(*bindings, mode=mode)]


def test_a_complete_binding_has_no_problem() -> None:
    """Nothing is reported where nothing is wrong."""
    assert find(binding("a", memory="24k")) == ()


def test_off_says_that_bindings_are_not_applied() -> None:
    """An administrator who writes bindings must see that they have no effect."""
    (problem,) = find(binding("a"), settings=BindingSettings())
    assert (problem.type, problem.bindings) == ("NotApplied", ())
    assert "bindings are not applied: allocation.bindings.mode is off" in note_of(problem)


@pytest.mark.parametrize(
    ("made", "type_", "words"),
    [
        (binding("a", card="GPU-9"), "UnknownCard", "no node reports card GPU-9"),
        (binding("a", memory="abc"), "InvalidMemory", "'abc' is not a Kubernetes quantity, so no pod gets the card"),
        (binding("a", memory="0"), "InvalidMemory", "'0' is not an amount of memory"),
        (binding("a", selector=None), "NoSelector", "so no pod gets the card"),
        (binding("a", namespace=""), "NoNamespace", "the labels of pods in every namespace are trusted"),
    ],
)
def test_each_problem_of_one_binding_is_named(made: Binding, type_: ProblemType, words: str) -> None:
    """The note names the binding, what is wrong, and what follows from it."""
    (problem,) = find(made)
    assert problem.type == type_
    assert note_of(problem).startswith("GPUBinding a: ")
    assert words in problem.message


def test_a_card_in_mig_mode_is_known_by_its_own_uuid() -> None:
    """HAMi writes the place of an instance behind the UUID of its card."""
    assert find(binding("a", card="GPU-1[0-1]")) == ()


def test_without_a_namespace_no_pod_gets_the_card_where_one_is_required() -> None:
    """Then such a binding neither trusts labels nor competes with others."""
    settings = BindingSettings(mode="required", require_namespace=True)
    (problem,) = find(binding("a", namespace=""), binding("b"), settings=settings)
    assert (problem.type, problem.bindings) == ("NoNamespace", ("a",))
    assert "no pod gets the card" in problem.message


def test_bindings_with_the_same_problem_share_a_note() -> None:
    """Application services that never write namespaces do not fill the screen."""
    made = [binding(f"b{number}", app=f"app-{number}", namespace="") for number in range(5)]
    (problem,) = find(*made)
    assert problem.bindings == ("b0", "b1", "b2", "b3", "b4")
    assert note_of(problem).startswith("GPUBindings b0,b1,b2,+2 more: spec.namespace is missing")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_bindings_for_the_same_pods_the_one_that_decides_is_named(order: tuple[int, ...]) -> None:
    """The more specific one decides, then the newer, whatever order the API server returns."""
    made = (
        binding("old"),
        binding("new", created="2026-02-01T00:00:00Z"),
        binding("legacy", owner="", created="2026-03-01T00:00:00Z"),
    )
    found = find(*(made[position] for position in order))
    assert {each.type for each in found} == {"Duplicate"}
    assert {each.bindings for each in found} == {("new", "old"), ("new", "legacy")}
    assert all("to the same pods of app chat: new decides" in each.message for each in found)


@pytest.mark.parametrize(
    "other",
    [
        binding("b", app="draw"),
        binding("b", owner="bob"),
        binding("b", namespace="ns-b"),
        binding("b", selector=None),
        binding("b", memory="abc"),
    ],
)
def test_bindings_that_never_compete_are_no_duplicates(other: Binding) -> None:
    """Another application, user or namespace has other pods; a binding that grants nothing decides nothing."""
    assert "Duplicate" not in types(binding("a"), other)


@pytest.mark.parametrize("other", [binding("b", app="draw"), binding("b", owner="bob", namespace="ns-b")])
def test_two_applications_on_an_exclusive_card_are_named(other: Binding) -> None:
    """Each keeps the other waiting; a card in another mode has room for both."""
    (problem,) = find(binding("a"), other, mode="exclusive")
    assert (problem.type, problem.bindings) == ("ExclusiveCardShared", ("a", "b"))
    assert "app chat of alice in namespace ns-a" in problem.message
    assert types(binding("a"), other, mode="memory-slicing") == []
    assert types(binding("a"), other, mode=None) == []


def test_one_application_on_an_exclusive_card_is_no_conflict() -> None:
    """Two bindings of one application compete, but no other pod waits."""
    assert types(binding("a"), binding("b"), mode="exclusive") == ["Duplicate"]


def test_more_memory_than_the_card_has_is_named_where_memory_is_divided() -> None:
    """With time slicing pods are not limited to the memory of their binding."""
    made = (binding("a", memory="24k"), binding("b", owner="bob", memory="16961"))
    (problem,) = find(*made, mode="memory-slicing")
    assert (problem.type, problem.bindings) == ("MemoryExceeded", ("a", "b"))
    assert "40961 MiB of card GPU-1, which has 40960 MiB" in problem.message
    assert types(*made, mode="time-slicing") == []
    assert types(made[0], binding("b", owner="bob", memory="16960"), mode="memory-slicing") == []


def test_memory_of_a_binding_that_never_decides_is_not_added() -> None:
    """Of two bindings for exactly the same pods one has no effect."""
    made = (binding("old", memory="24k"), binding("new", memory="24k", created="2026-02-01T00:00:00Z"))
    assert types(*made, mode="memory-slicing") == ["Duplicate"]
    workloads = [LabelSelector(match_labels={"part": part}) for part in ("web", "worker")]
    made = (binding("a", memory="24k", selector=workloads[0]), binding("b", memory="24k", selector=workloads[1]))
    assert types(*made, mode="memory-slicing") == ["MemoryExceeded", "Duplicate"]


def test_the_most_severe_problem_comes_first() -> None:
    """Notes are cut after a few, so that those that keep pods from cards must come first."""
    made = (
        binding("a", namespace=""),
        binding("b", owner="bob", memory="abc"),
        binding("c", selector=None),
        binding("d", card="GPU-9", owner="bob"),
    )
    assert types(*made) == ["UnknownCard", "InvalidMemory", "NoSelector", "NoNamespace"]
