"""Inter-pod affinity and anti-affinity decide as kube-scheduler's do."""

import asyncio
from typing import Any

import msgspec
import pytest

from scheduler.cycle import Chosen, Waiting, decide
from scheduler.state import State
from tests.scheduler.builders import Clock, namespace, node, pod, state

NEAR = "node didn't match pod affinity rules"
FAR = "node didn't match pod anti-affinity rules"
REPELLED = "node didn't satisfy existing pods anti-affinity rules"
HOST, ZONE = "kubernetes.io/hostname", "zone"


def term(key: str = ZONE, **fields: Any) -> dict[str, Any]:
    """Answer a term that means pods with app=web."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **fields}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    """Answer a required affinity."""
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def far(*terms: dict[str, Any]) -> dict[str, Any]:
    """Answer a required anti-affinity."""
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def cluster(clock: Clock | None = None) -> State:
    """Answer two zones of two nodes, and a node without zone; three namespaces."""
    made = state(clock=clock)
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("x1", "")):
        labels = {HOST: name, **({ZONE: zone} if zone else {})}
        made.set_node(node(name, metadata={"name": name, "labels": labels}))
    for each in (namespace("default", team="blue"), namespace("red", team="red"), namespace("bare")):
        made.set_namespace(each)
    return made


def web(name: str, on: str, **fields: Any) -> Any:
    """Answer a pod with app=web that runs."""
    return pod(name, node=on, phase="Running", **{"labels": {"app": "web"}, **fields})


def fitting(made: State, **fields: Any) -> set[str]:
    """Answer the nodes that take a pod."""
    return set(made.fleet.sort(pod("p", **fields)).fitting)


EVERYWHERE = {"a1", "a2", "b1", "b2", "x1"}


def test_affinity_brings_pods_near_each_other() -> None:
    """Near means: the same value of the node label. A node without the label is near nobody."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert fitting(made, **near(term())) == {"a1", "a2"}
    assert fitting(made, **near(term(HOST))) == {"a1"}
    refusals = made.fleet.sort(pod("p", **near(term()))).refusals
    assert refusals == dict.fromkeys(("b1", "b2", "x1"), NEAR)


def test_anti_affinity_keeps_pods_apart() -> None:
    """A node without the label is near nobody, so it takes the pod."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert fitting(made, **far(term())) == {"b1", "b2", "x1"}
    assert made.fleet.sort(pod("p", **far(term()))).refusals == {"a1": FAR, "a2": FAR}


def test_a_pod_that_runs_keeps_others_away() -> None:
    """Its anti-affinity holds for whoever comes later, even one that asks for nothing."""
    made = cluster()
    made.set_pod(pod("shy", node="a1", phase="Running", **far(term())))
    refusals = made.fleet.sort(pod("p", labels={"app": "web"})).refusals
    assert refusals == {"a1": REPELLED, "a2": REPELLED}
    assert fitting(made, labels={"app": "db"}) == EVERYWHERE
    assert fitting(made, labels={"app": "web"}, namespace="red") == EVERYWHERE


def test_the_first_of_a_series_goes_anywhere() -> None:
    """Pods with affinity to their own kind could never start otherwise; the label must still be there."""
    made = cluster()
    assert fitting(made, labels={"app": "web"}, **near(term())) == {"a1", "a2", "b1", "b2"}
    assert fitting(made, labels={"app": "db"}, **near(term())) == set()
    made.set_pod(web("w", "b1"))
    assert fitting(made, labels={"app": "web"}, **near(term())) == {"b1", "b2"}


def test_all_terms_are_met_by_one_pod() -> None:
    """Two pods that meet one term each are not what was asked for."""
    made = cluster()
    both = near(term(), term(labelSelector={"matchLabels": {"tier": "front"}}))
    made.set_pod(web("w", "a1"))
    made.set_pod(pod("front", node="a1", phase="Running", labels={"tier": "front"}))
    assert fitting(made, **both) == set()
    made.set_pod(web("wf", "b1", labels={"app": "web", "tier": "front"}))
    assert fitting(made, **both) == {"b1", "b2"}


def test_each_anti_affinity_term_counts_by_itself() -> None:
    """One pod at the wrong place is enough."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    made.set_pod(pod("db", node="b1", phase="Running", labels={"app": "db"}))
    apart = far(term(), term(HOST, labelSelector={"matchLabels": {"app": "db"}}))
    assert fitting(made, **apart) == {"b2", "x1"}


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, {"default"}),
        ({"namespaces": ["red"]}, {"red"}),
        ({"namespaces": ["red", "default"]}, {"red", "default"}),
        ({"namespaceSelector": {}}, {"default", "red", "bare"}),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, {"red"}),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}}, {"bare"}),
        ({"namespaceSelector": {"matchLabels": {"team": "red"}}, "namespaces": ["bare"]}, {"red", "bare"}),
        ({"namespaceSelector": {"matchLabels": {"team": "none"}}}, set()),
    ],
)
def test_namespaces(fields: dict[str, Any], meant: set[str]) -> None:
    """Named ones and those chosen by their labels, together; where nothing is said, the pod's own. Both ways."""
    for name in ("default", "red", "bare"):
        made = cluster()
        made.set_pod(web("w", "a1", namespace=name))
        assert (fitting(made, **far(term(**fields))) != EVERYWHERE) == (name in meant)
        made = cluster()
        made.set_pod(pod("shy", node="a1", phase="Running", **far(term(**fields))))
        assert (fitting(made, labels={"app": "web"}, namespace=name) != EVERYWHERE) == (name in meant)


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "x"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, False),
        ({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_label_selectors(selector: dict[str, Any] | None, matches: bool) -> None:  # noqa: FBT001
    """All of it must hold; an empty selector means every pod, none means no pod."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert (fitting(made, **far(term(labelSelector=selector))) != EVERYWHERE) == matches


def test_a_namespace_that_changes_its_labels_is_seen() -> None:
    """Its labels are read when a decision is made, not when a pod came."""
    made = cluster()
    made.set_pod(web("w", "a1", namespace="red"))
    red = far(term(namespaceSelector={"matchLabels": {"team": "red"}}))
    assert fitting(made, **red) == {"b1", "b2", "x1"}
    made.set_namespace(namespace("red", team="green"), namespace("red", team="red"))
    assert fitting(made, **red) == EVERYWHERE
    made.set_namespace(namespace("red", team="red"))
    made.drop_namespace(namespace("red", team="red"))
    assert fitting(made, **red) == EVERYWHERE


def test_a_pod_on_a_node_that_is_gone_counts_for_nothing() -> None:
    """It has no place; when the node is back, so is the pod."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    gone = node("a1", metadata={"name": "a1", "labels": {HOST: "a1", ZONE: "a"}})
    made.drop_node(gone)
    assert fitting(made, **far(term())) == {"a2", "b1", "b2", "x1"}
    made.set_node(gone)
    assert fitting(made, **far(term())) == {"b1", "b2", "x1"}


def test_a_decision_counts_before_it_is_bound() -> None:
    """Two replicas that must be apart are decided one after the other: the second sees the first."""
    made = cluster()
    apart = far(term(HOST))
    homes = []
    for index in range(6):
        decision = decide(made, pod(f"p{index}", labels={"app": "web"}, **apart))
        homes.append(decision.node if isinstance(decision, Chosen) else "")
    assert sorted(homes[:5]) == sorted(EVERYWHERE)
    assert homes[5] == ""


def test_a_finished_pod_is_nobodys_neighbour() -> None:
    """Neither is one that is deleted; one that is being deleted still is."""
    made = cluster()
    apart = far(term())
    made.set_pod(web("w", "a1"))
    leaving = web("w", "a1", deleted="2026-01-01T00:00:00Z")
    made.set_pod(leaving, web("w", "a1"))
    assert fitting(made, **apart) == {"b1", "b2", "x1"}
    done = web("w", "a1")
    done.status.phase = "Succeeded"
    made.set_pod(done, leaving)
    assert fitting(made, **apart) == EVERYWHERE


def test_preferences_refuse_nothing() -> None:
    """They do not decide where a pod may run."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term()}]}
    wish = {"affinity": {"podAntiAffinity": preferred, "podAffinity": preferred}}
    assert fitting(made, **wish) == EVERYWHERE


def test_affinity_and_anti_affinity_hold_together() -> None:
    """Near one kind and away from another."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    made.set_pod(pod("db", node="a2", phase="Running", labels={"app": "db"}))
    both = {
        "affinity": {
            **near(term())["affinity"],
            **far(term(HOST, labelSelector={"matchLabels": {"app": "db"}}))["affinity"],
        }
    }
    assert fitting(made, **both) == {"a1"}


async def woken(made: State, clock: Clock, spec: dict[str, Any], change: Any) -> bool:
    """Whether a pod that does not fit now is tried again after `change`, and fits then."""
    made.set_pod(pod("waits", **spec))
    entry = await made.queue.pop()
    decision = decide(made, entry.pod)
    assert isinstance(decision, Waiting)
    made.queue.fail(entry, decision.cures)
    clock.now += 10
    change()
    async with asyncio.timeout(1):
        assert await made.queue.pop() is entry
    return isinstance(decide(made, entry.pod), Chosen)


async def test_company_wakes_who_waits_for_it() -> None:
    """A pod that comes, one that gets the label, and a namespace that does."""
    clock = Clock()
    made = cluster(clock)
    assert await woken(made, clock, near(term()), lambda: made.set_pod(web("w", "a1")))
    clock = Clock()
    made = cluster(clock)
    bare = web("w", "a1", labels={})
    made.set_pod(bare)
    assert await woken(made, clock, near(term()), lambda: made.set_pod(web("w", "a1"), bare))
    clock = Clock()
    made = cluster(clock)
    made.set_pod(web("w", "a1", namespace="bare"))
    wish = near(term(namespaceSelector={"matchLabels": {"team": "red"}}))
    assert await woken(made, clock, wish, lambda: made.set_namespace(namespace("bare", team="red"), namespace("bare")))


async def test_a_label_of_its_own_may_be_a_pods_cure() -> None:
    """A pod that is repelled by its label loses it."""
    clock = Clock()
    made = cluster(clock)
    for name in EVERYWHERE:
        made.set_pod(pod(f"shy-{name}", node=name, phase="Running", **far(term(HOST))))
    waiting = pod("waits", labels={"app": "web"})
    free = msgspec.structs.replace(waiting, metadata=msgspec.structs.replace(waiting.metadata, labels={}))
    assert await woken(made, clock, {"labels": {"app": "web"}}, lambda: made.set_pod(free, waiting))


async def test_strangers_wake_nobody() -> None:
    """A pod that nobody looks at is no cure: a large backlog is not decided again for each pod that starts."""
    clock = Clock()
    made = cluster(clock)
    made.set_pod(pod("waits", **near(term())))
    entry = await made.queue.pop()
    made.queue.fail(entry, decide(made, entry.pod).cures)  # type: ignore[union-attr]
    clock.now += 10
    made.set_pod(pod("stranger", node="a1", phase="Running", labels={"app": "db"}))
    popping = asyncio.create_task(made.queue.pop())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not popping.done()
    popping.cancel()
