"""Which PodDisruptionBudgets a pod has, by the rules of policy/v1."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.label_selector import accepts, label_selector
from cluster.disruption_budget import BudgetSpec, PodDisruptionBudget
from scheduler.preemption import disruption_budgets
from scheduler.preemption.disruption_budgets import Budget, DisruptionBudgets

EVERYTHING: dict[str, Any] = {}
EXPRESSIONS = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["app", "tier"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        "values": st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=2, unique=True),
    }
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier", "x"]), st.sampled_from(["a", "b"]), max_size=3)
SELECTORS = st.none() | st.fixed_dictionaries(
    {"matchLabels": LABELS, "matchExpressions": st.lists(EXPRESSIONS, max_size=2)}
)
BUDGETS = st.tuples(
    st.sampled_from(["n1", "n2"]), st.sampled_from(["p", "q", "r"]), SELECTORS, st.integers(0, 3), st.booleans()
)


def budget(name: str, selector: dict[str, Any] | None, *, namespace: str = "n1", allowed: int = 1) -> Any:
    """Return a budget as the API server shows it."""
    body = {
        "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {"selector": selector} if selector is not None else {},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }
    return msgspec.convert(body, PodDisruptionBudget)


def names(budgets: DisruptionBudgets, namespace: str = "n1", **labels: str) -> list[str]:
    """Return the names of the budgets of a pod."""
    return [each.name for each in budgets.of_pod(namespace, labels)]


def test_an_empty_selector_is_for_every_pod_and_a_missing_one_for_none() -> None:
    """This is policy/v1; in v1beta1 an empty selector matched nothing."""
    budgets = DisruptionBudgets()
    budgets.set(budget("empty", EVERYTHING))
    budgets.set(budget("missing", None))
    assert names(budgets) == ["empty"]
    assert names(budgets, app="a") == ["empty"]


def test_budgets_of_other_namespaces_do_not_count() -> None:
    """A budget is for pods of its own namespace, whatever it selects."""
    budgets = DisruptionBudgets()
    budgets.set(budget("all", EVERYTHING, namespace="n2"))
    assert names(budgets, "n1") == []
    assert names(budgets, "n2") == ["all"]


def test_labels_and_expressions_must_all_match() -> None:
    """A budget is found by a label that it requires, and the rest of its selector counts too."""
    budgets = DisruptionBudgets()
    not_b = {"key": "tier", "operator": "NotIn", "values": ["b"]}
    budgets.set(budget("p", {"matchLabels": {"app": "a"}, "matchExpressions": [not_b]}))
    assert names(budgets, app="a") == names(budgets, app="a", tier="a") == ["p"]
    assert names(budgets, app="a", tier="b") == names(budgets, app="b") == names(budgets) == []


def test_a_changed_selector_replaces_the_earlier_one() -> None:
    """Also from one that is found by a label to one that is not, and back."""
    budgets = DisruptionBudgets()
    for selector in ({"matchLabels": {"app": "a"}}, EVERYTHING, {"matchLabels": {"app": "a"}}, None):
        budgets.set(budget("p", selector))
        assert (names(budgets, app="a"), names(budgets, app="b")) == (
            [] if selector is None else ["p"],
            ["p"] if selector == EVERYTHING else [],
        )


def test_a_deleted_budget_is_forgotten() -> None:
    """The others of its namespace stay; a budget that was never seen is not missed."""
    budgets = DisruptionBudgets()
    for name in ("p", "q"):
        budgets.set(budget(name, EVERYTHING))
    budgets.drop(budget("p", EVERYTHING))
    budgets.drop(budget("p", EVERYTHING))
    assert names(budgets) == ["q"]


@pytest.mark.parametrize(
    ("generation", "observed", "counted", "allowed"), [(1, 1, 2, 2), (2, 1, 2, 0), (1, 1, 0, 0), (1, 1, -1, 0)]
)
def test_a_status_of_an_earlier_spec_permits_nothing(
    generation: int, observed: int, counted: int, allowed: int
) -> None:
    """The API server refuses each Eviction until the controller has counted for the present spec."""
    made = budget("p", EVERYTHING)
    made.metadata.generation = generation
    made.status = msgspec.structs.replace(made.status, observed_generation=observed, disruptions_allowed=counted)
    budgets = DisruptionBudgets()
    budgets.set(made)
    assert budgets.of_pod("n1", {}) == (Budget("n1", "p", allowed),)


@pytest.mark.parametrize(
    ("spec", "is_rigid"),
    [
        ({"maxUnavailable": 0}, True),
        ({"maxUnavailable": "0%"}, True),
        ({"maxUnavailable": "000%"}, True),
        ({"maxUnavailable": 1}, False),
        ({"maxUnavailable": "10%"}, False),
        ({"minAvailable": "100%"}, True),
        ({"minAvailable": "0100%"}, True),
        ({"minAvailable": "99%"}, False),
        ({"minAvailable": "0%"}, False),
        ({"minAvailable": 100}, False),
        ({}, False),
    ],
)
def test_budget_that_requires_all_of_its_pods_is_rigid(spec: dict[str, Any], *, is_rigid: bool) -> None:
    """Whatever its status says, and although nothing of these numbers is kept, which may be long texts."""
    body = {"metadata": {"name": "p", "namespace": "n1", "generation": 9}, "spec": {"selector": {}, **spec}}
    made = msgspec.convert(body, PodDisruptionBudget)
    assert made.is_rigid is is_rigid
    assert made.spec == BudgetSpec(made.spec.selector)


@pytest.mark.parametrize(
    ("desired", "expected", "observed", "is_rigid"),
    [(3, 3, 1, True), (9, 3, 1, True), (2, 3, 1, False), (3, 3, 0, False), (0, 0, 1, False)],
)
def test_budget_that_requires_as_many_pods_as_there_are_is_rigid(
    desired: int, expected: int, observed: int, *, is_rigid: bool
) -> None:
    """As the API server counts them for the present spec."""
    made = budget("p", EVERYTHING, allowed=0)
    counts = {"desired_healthy": desired, "expected_pods": expected, "observed_generation": observed}
    made.status = msgspec.structs.replace(made.status, **counts)
    assert made.is_rigid is is_rigid


@given(st.lists(BUDGETS, max_size=12), st.sampled_from(["n1", "n2"]), LABELS)
def test_budgets_of_a_pod_are_those_that_a_plain_evaluation_finds(
    changes: list[tuple[str, str, dict[str, Any] | None, int, bool]], namespace: str, labels: dict[str, str]
) -> None:
    """After any history of changes and deletions."""
    budgets, present = DisruptionBudgets(), {}
    for where, name, selector, allowed, is_dropped in changes:
        pdb = budget(name, selector, namespace=where, allowed=allowed)
        if is_dropped:
            budgets.drop(pdb)
            present.pop((where, name), None)
        else:
            budgets.set(pdb)
            present[where, name] = pdb
    expected = {
        Budget(where, name, pdb.allowed)
        for (where, name), pdb in present.items()
        if where == namespace and accepts(label_selector(pdb.spec.selector), labels)
    }
    found = budgets.of_pod(namespace, labels)
    assert set(found) == expected
    assert [each.name for each in found] == sorted(each.name for each in expected)


# ---- bounds ----------------------------------------------------------------------------------------------------------


def expressions(count: int, *, values: int = 1, length: int = 1) -> dict[str, Any]:
    """Return a selector of `count` expressions, each with `values` values of a length."""
    value = ["v" * length + str(number) for number in range(values)]
    return {"matchExpressions": [{"key": f"k{at}", "operator": "NotIn", "values": value} for at in range(count)]}


@pytest.mark.parametrize(
    ("selector", "is_oversized"),
    [
        (expressions(64), False),
        (expressions(65), True),
        (expressions(1, values=383), False),
        (expressions(1, values=384), True),
        (expressions(1, length=16 * 1024 - 3), False),
        (expressions(1, length=16 * 1024), True),
        ({"matchLabels": {f"k{number}": "" for number in range(65)}}, True),
    ],
)
def test_budget_that_is_too_large_guards_its_namespace(selector: dict[str, Any], *, is_oversized: bool) -> None:
    """Nothing of it is kept or compared, so it counts as one of every pod there, and allows nothing."""
    made, budgets = budget("large", selector, allowed=5), DisruptionBudgets()
    assert made.is_oversized is is_oversized
    assert (made.spec.selector is None) is is_oversized
    budgets.set(made)
    assert budgets.of_pod("n1", {}) == (Budget("n1", "large", 0 if is_oversized else 5, is_rigid=is_oversized),)
    assert budgets.of_pod("n2", {}) == ()
    budgets.set(budget("large", {"matchLabels": {"app": "a"}}))
    assert names(budgets) == []
    budgets.set(made)
    budgets.drop(made)
    assert names(budgets) == []


def test_so_many_budgets_are_compared_with_a_pod() -> None:
    """One more, and the pod counts as guarded; those that are found by another label are not compared."""
    budgets = DisruptionBudgets()
    for number in range(64):
        budgets.set(budget(f"of-a-{number:02}", {"matchLabels": {"app": "a", "x": str(number)}}))
        budgets.set(budget(f"of-b-{number:02}", {"matchLabels": {"app": "b"}}))
    assert names(budgets, app="a", x="7") == ["of-a-07"]
    budgets.set(budget("every", {"matchExpressions": [{"key": "y", "operator": "Exists"}]}))
    (guard,) = budgets.of_pod("n1", {"app": "a", "x": "7"})
    assert (guard.allowed, guard.is_rigid) == (0, True)
    assert names(budgets, app="c", y="") == ["every"]


def test_budgets_of_a_pod_are_remembered_until_one_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the many pods of a node, most have the same labels, and are looked at again and again."""
    compared = 0

    def count(*arguments: Any) -> bool:
        nonlocal compared
        compared += 1
        return accepts(*arguments)

    monkeypatch.setattr(disruption_budgets, "accepts", count)
    budgets = DisruptionBudgets()
    budgets.set(budget("p", expressions(64)))
    budgets.set(budget("p", expressions(64), namespace="n2"))
    for _ in range(80):
        assert names(budgets, app="a") == names(budgets, app="b") == ["p"]
    assert compared == 2
    budgets.set(budget("p", expressions(64), namespace="n2"))
    assert names(budgets, app="a") == ["p"]
    assert compared == 2, "a change elsewhere does not count"
    budgets.set(budget("p", expressions(64), allowed=0))
    assert [each.allowed for each in budgets.of_pod("n1", {"app": "a"})] == [0]
    for number in range(5000):
        budgets.of_pod("n1", {"app": str(number)})
    assert len(budgets._answers["n1"]) <= 1024
