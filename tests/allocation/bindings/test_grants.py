"""Which cards bindings grant: selected pods only, one binding for each card, in any order the same."""

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.bindings import grants
from allocation.bindings.binding import Binding
from allocation.bindings.grants import Grant
from allocation.label_selector import Expression, LabelSelector
from allocation.quantity import INT32_MAX, Quantity
from tests.allocation.support.binding import ALICE, BOB, binding

OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def granted(*bindings: Binding, labels: dict[str, str] | None = None) -> list[str]:
    """Return the names of the bindings that grant alice's pod something."""
    return [grant.binding for grant in grants.of_pod(bindings, ALICE, labels or {})]


# ---- podSelector -----------------------------------------------------------------------------------------------------


def test_a_binding_without_a_selector_selects_no_pod() -> None:
    """Absent is not empty: an empty selector selects every pod of the application."""
    assert granted(binding(pod_selector=None)) == []
    assert granted(binding(pod_selector=LabelSelector())) == ["b"]


def test_all_labels_of_a_selector_must_match() -> None:
    """And they are the pod's own labels."""
    one = binding(pod_selector=LabelSelector(match_labels={"tier": "gpu", "part": "main"}))
    assert granted(one, labels={"tier": "gpu", "part": "main", "more": "x"}) == ["b"]
    assert granted(one, labels={"tier": "gpu"}) == []


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("NotIn", ("cpu",), {"gpu": True, "cpu": False, None: True}),
        ("In", ("gpu", "tpu"), {"gpu": True, "cpu": False, None: False}),
        ("Exists", (), {"gpu": True, "cpu": True, None: False}),
        ("DoesNotExist", (), {"gpu": False, "cpu": False, None: True}),
        ("Nonsense", (), {"gpu": False, "cpu": False, None: False}),
    ],
)
def test_expressions_of_a_selector_are_honoured(
    operator: str, values: tuple[str, ...], matches: dict[str | None, bool]
) -> None:
    """NotIn accepts pods without the label; an operator that does not exist selects no pod."""
    one = binding(pod_selector=LabelSelector(match_expressions=(Expression("tier", operator, values),)))
    for value, expected in matches.items():
        labels = {} if value is None else {"tier": value}
        assert bool(granted(one, labels=labels)) is expected


# ---- precedence ------------------------------------------------------------------------------------------------------


def test_the_most_specific_binding_of_a_card_decides() -> None:
    """Owner and namespace before owner before namespace before neither, however new the others are."""
    ranked = [
        binding("both", owner="alice", namespace="ns-a", created=OLD, memory=1),
        binding("owner", owner="alice", created=NEW, memory=2),
        binding("namespace", namespace="ns-a", created=NEW, memory=3),
        binding("legacy", created=NEW, memory=4),
    ]
    for left in range(4):
        for order in permutations(ranked[left:]):
            (grant,) = grants.of_pod(order, ALICE, {})
            assert (grant.binding, grant.memory_mib) == (ranked[left].name, left + 1)


def test_of_equally_specific_bindings_the_newer_decides_then_the_name() -> None:
    """The card's memory comes from the same binding."""
    assert granted(binding("a", created=OLD), binding("b", created=NEW)) == ["b"]
    assert granted(binding("b", created=OLD), binding("a", created=OLD)) == ["a"]


def test_another_owners_binding_never_decides() -> None:
    """Bob's newer binding of the same card has no say in what alice gets of it, nor alice's in what bob gets."""
    bindings = [binding("of-bob", owner="bob", created=NEW, memory=7), binding("legacy", created=OLD, memory=5)]
    assert grants.of_pod(bindings, ALICE, {}) == (Grant("GPU-0", 5, "legacy"),)
    assert grants.of_pod(bindings, BOB, {}) == (Grant("GPU-0", 7, "of-bob"),)


def test_a_mig_place_in_the_uuid_is_the_card() -> None:
    """HAMi writes the place of an instance behind the UUID: both bindings are of one card."""
    (grant,) = grants.of_pod([binding("a", uuid="GPU-0[1-2]", created=OLD), binding("b", created=NEW)], ALICE, {})
    assert grant == Grant("GPU-0", None, "b")


BINDINGS = st.lists(
    st.builds(
        binding,
        name=st.integers(0, 30).map(str),
        uuid=st.sampled_from(("", "GPU-0", "GPU-1", "GPU-1[0-1]", "GPU-2")),
        app=st.sampled_from(("comfyui", "comfyui", "ollama")),
        created=st.sampled_from((OLD, NEW, "")),
        owner=st.sampled_from(("", "alice", "bob")),
        namespace=st.sampled_from(("", "ns-a", "ns-b")),
        pod_selector=st.sampled_from((LabelSelector(), None, LabelSelector(match_labels={"tier": "gpu"}))),
        memory=st.sampled_from((None, 1, "24k", "8Gi", "0", "nonsense")),
    ),
    unique_by=lambda each: each.name,
    max_size=12,
)


@given(BINDINGS, st.randoms(use_true_random=False))
def test_the_order_of_the_bindings_does_not_matter(bindings: list[Binding], chance: random.Random) -> None:
    """Every shuffled list grants the same, at most once per card, and only by bindings of the application."""
    expected = grants.of_pod(bindings, ALICE, {"tier": "gpu"})
    shuffled = [*bindings]
    chance.shuffle(shuffled)
    assert grants.of_pod(shuffled, ALICE, {"tier": "gpu"}) == expected
    assert [grant.card for grant in expected] == sorted({grant.card for grant in expected})
    by_name = {each.name: each for each in bindings}
    for grant in expected:
        decides = by_name[grant.binding]
        assert ALICE.has(decides.spec)
        assert decides.spec.card == grant.card
        assert decides.spec.pod_selector is not None


# ---- memory ----------------------------------------------------------------------------------------------------------

MEMORY: list[tuple[Quantity, int]] = [
    ("23552", 23552),
    (23552, 23552),
    ("24k", 24000),
    ("8Gi", 8192),
    ("8G", 7630),
    ("1", 1),
    ("1Ki", 1),
    ("16", 16),
    ("16Mi", 16),
    ("16M", 16),
    ("0.5", 1),
    (str(INT32_MAX), INT32_MAX),
]


@pytest.mark.parametrize(("written", "mib"), MEMORY)
def test_memory_without_a_suffix_or_with_k_counts_mib_and_bytes_otherwise(written: Quantity, mib: int) -> None:
    """As application services write it, and as the API server writes it back."""
    (grant,) = grants.of_pod([binding(memory=written)], ALICE, {})
    assert grant.memory_mib == mib


@pytest.mark.parametrize("written", ["0", "-1", "-8Gi", "", "many", "8GiB", str(INT32_MAX + 1), "1E", "NaN", 0, -1])
def test_a_binding_whose_memory_cannot_be_read_grants_nothing(written: Quantity) -> None:
    """Rather than all of the card; a binding that can be read decides in its place."""
    assert granted(binding("b", memory=written, created=NEW)) == []
    assert granted(binding("b", memory=written, created=NEW), binding("readable", memory=1, created=OLD)) == [
        "readable"
    ]


def test_a_binding_without_memory_sets_none() -> None:
    """The pod's own request decides."""
    assert grants.of_pod([binding()], ALICE, {}) == (Grant("GPU-0", None, "b"),)
