"""Which gang gathers next: no namespace keeps another one from its turn, however many gangs it has."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler.extender.gang_turns import GangTurns, Turn
from scheduler.gangs.gang import GangKey

NAMESPACES = "abc"
keys = st.builds(GangKey, st.sampled_from(NAMESPACES), st.sampled_from("xyz"))


def begin(turns: GangTurns, key: GangKey) -> None:
    """Let a gang gather, and another one once it has ended."""
    turns.drop(key)
    turns.current = Turn(key, {}, 0.0)


def end(turns: GangTurns) -> None:
    """End the turn of the gang that gathers."""
    assert turns.current is not None
    key, turns.current = turns.current.key, None
    turns.serve(key)


@given(st.lists(st.lists(keys, max_size=6), min_size=1, max_size=40))
def test_a_gang_waits_for_one_turn_of_each_other_namespace_at_most(rounds: list[list[GangKey]]) -> None:
    """In each round some gangs want to gather, the first one does, and ends; gangs come back as often as they like."""
    turns, passed = GangTurns(), dict[str, int]()
    for wanting in rounds:
        first = turns.first()
        if first is not None:
            begin(turns, first)
        for key in wanting:
            turns.add(key)
            passed.setdefault(key.namespace, 0)
        if first is not None:
            end(turns)
            passed.pop(first.namespace, None)
            passed = {name: count + 1 for name, count in passed.items()}
        waiting = {key.namespace for key in _in_order(turns)}
        passed = {name: passed.get(name, 0) for name in waiting}
        assert all(count <= len(NAMESPACES) for count in passed.values())


@given(st.lists(keys, max_size=12))
def test_gangs_of_a_namespace_come_in_the_order_in_which_they_wanted_to(wanting: list[GangKey]) -> None:
    """One that asks again keeps its place."""
    turns = GangTurns()
    for key in wanting:
        turns.add(key)
    expected = dict.fromkeys(wanting)
    found = _in_order(turns)
    assert len(found) == len(expected)
    for namespace in NAMESPACES:
        assert [key for key in found if key.namespace == namespace] == [
            key for key in expected if key.namespace == namespace
        ]


def test_gang_that_gathers_comes_before_all() -> None:
    """Then the first that wants to; no other one may begin before that."""
    turns = GangTurns()
    a, b = GangKey("a", "x"), GangKey("b", "x")
    assert turns.before(b) is None
    turns.add(a)
    turns.add(b)
    assert (turns.before(a), turns.before(b)) == (None, a)
    begin(turns, b)
    assert (turns.before(a), turns.before(b)) == (b, None)


def _in_order(turns: GangTurns) -> list[GangKey]:
    """Return the gangs in the order of their turns if no other one comes."""
    copy, found = GangTurns(), []
    for gangs in turns._namespaces.values():
        for key in gangs:
            copy.add(key)
    while (key := copy.first()) is not None:
        found.append(key)
        copy.serve(key)
    return found
