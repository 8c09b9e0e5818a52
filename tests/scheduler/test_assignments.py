"""Indexes and host ports: each of one live pod, also after a restart, whatever users write into annotations."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from allocation.errors import AllocationError
from allocation.names import HOST_PORT, INDEX
from scheduler.assignment_settings import AssignmentSettings
from scheduler.assignments import Assignments, NumberTakenError
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod

FIRST, END = 40000, 40004


def made(most: int = 3) -> Assignments:
    """Return the numbers of a cluster without pods."""
    return Assignments(ports=(FIRST, END), most_per_namespace=most)


def written(name: str, number: object, *, created: str = "2026-01-01T00:00:00Z", namespace: str = "default") -> Pod:
    """Return a pod with an annotation for its port."""
    return pod(name, annotations={HOST_PORT: str(number)}, created=created, namespace=namespace)


def test_a_pod_has_the_same_number_each_time_and_others_have_another() -> None:
    """From when it asks until it has ended; then another pod may have it."""
    numbers = made()
    assert [numbers.ports.assign(pod(name)) for name in "aab"] == [FIRST, FIRST, FIRST + 1]
    assert [numbers.indexes.assign(pod(name)) for name in "ba"] == [1, 2]
    numbers.set_pod(pod("a", phase="Succeeded"))
    assert numbers.ports.assign(pod("c")) == FIRST
    numbers.drop_pod(pod("b"))
    assert numbers.ports.assign(pod("d", namespace="other")) == FIRST + 1


def test_the_next_leader_knows_the_numbers_from_annotations() -> None:
    """In whatever order it reads the pods."""
    numbers = made()
    numbers.set_pod(written("b", FIRST))
    numbers.set_pod(pod("a", annotations={INDEX: "7"}))
    assert numbers.ports.assign(pod("c")) == FIRST + 1
    assert numbers.ports.assign(written("b", FIRST)) == FIRST
    assert numbers.indexes.assign(pod("a")) == 7


def test_an_older_pod_keeps_its_number() -> None:
    """A user who writes the number of another pod takes nothing from it, and gets an error that says so."""
    numbers, old, young = made(), written("old", FIRST), written("young", FIRST, created="2026-02-01T00:00:00Z")
    for order in ((old, young), (young, old)):
        numbers = made()
        for each in order:
            numbers.set_pod(each)
        assert numbers.ports.assign(old) == FIRST
        with pytest.raises(NumberTakenError, match=f"annotation {HOST_PORT} of pod default/young"):
            numbers.ports.assign(young)


@pytest.mark.parametrize("text", ["", "x", "-1", "39999", "40004", "9" * 200, "٤٠٠٠٠", "40000.0"])
def test_what_is_not_a_number_of_the_range_counts_for_nothing(text: str) -> None:
    """The pod gets none before its annotation is gone."""
    numbers, strange = made(), written("strange", text)
    numbers.set_pod(strange)
    with pytest.raises(NumberTakenError, match="not in the range"):
        numbers.ports.assign(strange)
    assert numbers.ports.assign(pod("other")) == FIRST


def test_a_namespace_takes_a_bounded_part() -> None:
    """By asking and by writing: so it cannot keep all numbers from others."""
    numbers = made(most=2)
    numbers.set_pod(written("a", FIRST))
    numbers.ports.assign(pod("b"))
    numbers.set_pod(written("c", FIRST + 2))
    with pytest.raises(NumberTakenError, match="as many as scheduler.assignments.most_per_namespace allows"):
        numbers.ports.assign(pod("d"))
    assert numbers.ports.assign(pod("e", namespace="other")) == FIRST + 2


def test_without_a_free_number_nothing_is_assigned() -> None:
    """Until a pod ends."""
    numbers = made(most=9)
    for name in "abcd":
        numbers.ports.assign(pod(name))
    with pytest.raises(AllocationError, match="live pods have all ports"):
        numbers.ports.assign(pod("e"))
    numbers.drop_pod(pod("b"))
    assert numbers.ports.assign(pod("e")) == FIRST + 1


class Cluster(RuleBasedStateMachine):
    """Pods that ask, write what they like, and end, in some order; the leader changes now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = made()
        self.pods: dict[str, Pod] = {}
        self.own: dict[str, int] = {}

    @rule(name=st.sampled_from("abcdef"), number=st.none() | st.integers(FIRST - 1, END))
    def change(self, name: str, number: int | None) -> None:
        """A user creates a pod, or changes its annotation."""
        namespace = "x" if name < "d" else "y"
        created = f"2026-01-0{'abcdef'.index(name) + 1}T00:00:00Z"
        made_of = {} if number is None else {HOST_PORT: str(number)}
        self.pods[name] = pod(name, namespace=namespace, created=created, annotations=made_of)
        self.numbers.set_pod(self.pods[name])

    @rule(name=st.sampled_from("abcdef"))
    def ask(self, name: str) -> None:
        """A pod asks for its number; it has had the same since it first asked."""
        if name in self.pods:
            try:
                number = self.numbers.ports.assign(self.pods[name])
            except AllocationError:
                assert name not in self.own
            else:
                assert self.own.setdefault(name, number) == number

    @rule(name=st.sampled_from("abcdef"))
    def end(self, name: str) -> None:
        """A pod ends."""
        if name in self.pods:
            self.numbers.drop_pod(self.pods.pop(name))
            self.own.pop(name, None)

    @rule()
    def lead(self) -> None:
        """Another replica leads: it knows the numbers in annotations, and no others."""
        self.numbers, self.own = made(), {}
        for each in self.pods.values():
            self.numbers.set_pod(each)

    @invariant()
    def no_two_pods_have_one_number(self) -> None:
        """Of all that the leader knows, whether they asked or not."""
        numbers = {name: self.numbers.ports.of(each) for name, each in self.pods.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        assert len({*known.values()}) == len(known)
        assert all(FIRST <= number < END for number in known.values())
        for namespace in ("x", "y"):
            assert sum(self.pods[name].metadata.namespace == namespace for name in known) <= 3


def test_no_history_gives_one_number_to_two_pods() -> None:
    """Nor to a namespace more than its part."""
    run_state_machine_as_test(Cluster, settings=settings(max_examples=60, stateful_step_count=25, deadline=None))


@pytest.mark.parametrize("text", ["40000", "40010-40000", "80-90", "60000-70000", "a-b", "40000-", "1-2-3"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    """At the start, with the setting's name."""
    with pytest.raises(ValueError, match="port_range is"):
        AssignmentSettings(port_range=text)


def test_the_range_includes_both_ports() -> None:
    """As that of Kubernetes' node ports; without one nothing is assigned."""
    assert AssignmentSettings(port_range="40000-40003").ports == (40000, 40004)
    assert AssignmentSettings().ports is None
    with pytest.raises(ValueError, match="most_per_namespace"):
        AssignmentSettings(most_per_namespace=0)
