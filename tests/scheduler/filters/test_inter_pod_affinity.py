"""Inter-pod affinity and anti-affinity decide as kube-scheduler's do."""

import asyncio
from typing import Any

import msgspec
import pytest

from allocation.steps import finish
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.filters.affinity_terms import PodTerm
from scheduler.queue.entry import Rejected
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support.builders import Clock, namespace, node, pod, state
from tests.scheduler.support.popping import due
from tests.scheduler.support.rejections import texts
from tests.scheduler.support.scheduling import schedule

NEAR = "node didn't match pod affinity rules"
FAR = "node didn't match pod anti-affinity rules"
REPELLED = "node didn't satisfy existing pods anti-affinity rules"
HOST, ZONE = "kubernetes.io/hostname", "zone"


def term(key: str = ZONE, **fields: Any) -> dict[str, Any]:
    """Return a term that matches pods with app=web."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "web"}}, **fields}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a required affinity."""
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def far(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a required anti-affinity."""
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def cluster(clock: Clock | None = None) -> ClusterState:
    """Return two zones of two nodes, and a node without zone; three namespaces."""
    made = state(clock=clock)
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"), ("x1", "")):
        labels = {HOST: name, **({ZONE: zone} if zone else {})}
        made.set_node(node(name, metadata={"name": name, "labels": labels}))
    for each in (namespace("default", team="blue"), namespace("red", team="red"), namespace("bare")):
        made.limits.set_namespace(each)
    return made


def web(name: str, on: str, **fields: Any) -> Any:
    """Return a running pod with app=web."""
    return pod(name, node=on, phase="Running", **{"labels": {"app": "web"}, **fields})


def fitting(made: ClusterState, **fields: Any) -> set[str]:
    """Return the nodes that take a pod."""
    return set(finish(made.node_filter.filter(pod("p", **fields))).fitting)


EVERYWHERE = {"a1", "a2", "b1", "b2", "x1"}


def test_affinity_brings_pods_near_each_other() -> None:
    """Nodes with the same value of the label are near each other. A node without the label is near no other."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert fitting(made, **near(term())) == {"a1", "a2"}
    assert fitting(made, **near(term(HOST))) == {"a1"}
    refusals = texts(finish(made.node_filter.filter(pod("p", **near(term())))).rejections)
    assert refusals == dict.fromkeys(("b1", "b2", "x1"), NEAR)


def test_anti_affinity_keeps_pods_apart() -> None:
    """A node without the label is near no other, so it takes the pod."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert fitting(made, **far(term())) == {"b1", "b2", "x1"}
    assert texts(finish(made.node_filter.filter(pod("p", **far(term())))).rejections) == {"a1": FAR, "a2": FAR}


def test_a_running_pod_keeps_others_away() -> None:
    """Its anti-affinity applies to every later pod, even one without rules."""
    made = cluster()
    made.set_pod(pod("shy", node="a1", phase="Running", **far(term())))
    refusals = texts(finish(made.node_filter.filter(pod("p", labels={"app": "web"}))).rejections)
    assert refusals == {"a1": REPELLED, "a2": REPELLED}
    assert fitting(made, labels={"app": "db"}) == EVERYWHERE
    assert fitting(made, labels={"app": "web"}, namespace="red") == EVERYWHERE


def test_the_first_pod_of_a_series_goes_anywhere() -> None:
    """Otherwise pods with affinity to themselves could never start; the node still needs the label."""
    made = cluster()
    assert fitting(made, labels={"app": "web"}, **near(term())) == {"a1", "a2", "b1", "b2"}
    assert fitting(made, labels={"app": "db"}, **near(term())) == set()
    made.set_pod(web("w", "b1"))
    assert fitting(made, labels={"app": "web"}, **near(term())) == {"b1", "b2"}


def test_one_pod_must_match_all_affinity_terms() -> None:
    """Two pods that match one term each do not suffice."""
    made = cluster()
    both = near(term(), term(labelSelector={"matchLabels": {"tier": "front"}}))
    made.set_pod(web("w", "a1"))
    made.set_pod(pod("front", node="a1", phase="Running", labels={"tier": "front"}))
    assert fitting(made, **both) == set()
    made.set_pod(web("wf", "b1", labels={"app": "web", "tier": "front"}))
    assert fitting(made, **both) == {"b1", "b2"}


def test_each_anti_affinity_term_counts_by_itself() -> None:
    """One matching pod is enough to reject a node."""
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
def test_terms_apply_to_their_namespaces(fields: dict[str, Any], meant: set[str]) -> None:
    """Listed namespaces and those that the selector matches; by default the pod's own. In both directions."""
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
    """The labels of a namespace are read at each decision, not when a pod is added."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    assert (fitting(made, **far(term(labelSelector=selector))) != EVERYWHERE) == matches


def test_a_namespace_that_changes_its_labels_is_seen() -> None:
    """Its labels are read when a decision is made, not when a pod came."""
    made = cluster()
    made.set_pod(web("w", "a1", namespace="red"))
    red = far(term(namespaceSelector={"matchLabels": {"team": "red"}}))
    assert fitting(made, **red) == {"b1", "b2", "x1"}
    made.limits.set_namespace(namespace("red", team="green"), namespace("red", team="red"))
    assert fitting(made, **red) == EVERYWHERE
    made.limits.set_namespace(namespace("red", team="red"))
    made.limits.drop_namespace(namespace("red", team="red"))
    assert fitting(made, **red) == EVERYWHERE


def test_a_pod_on_a_removed_node_is_ignored() -> None:
    """It counts again when the node returns."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    gone = node("a1", metadata={"name": "a1", "labels": {HOST: "a1", ZONE: "a"}})
    made.drop_node(gone)
    assert fitting(made, **far(term())) == {"a2", "b1", "b2", "x1"}
    made.set_node(gone)
    assert fitting(made, **far(term())) == {"b1", "b2", "x1"}


def test_an_assumed_pod_counts() -> None:
    """Two replicas that must be apart are scheduled one after the other: the second cycle sees the first pod."""
    made = cluster()
    apart = far(term(HOST))
    nodes = []
    for index in range(6):
        decision = finish(schedule(made, pod(f"p{index}", labels={"app": "web"}, **apart)))
        nodes.append(decision.node if isinstance(decision, Scheduled) else "")
    assert sorted(nodes[:5]) == sorted(EVERYWHERE)
    assert nodes[5] == ""


def test_a_finished_pod_is_ignored() -> None:
    """So is a deleted one; a terminating pod still counts."""
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


def test_preferences_reject_no_node() -> None:
    """They do not restrict where a pod may run."""
    made = cluster()
    made.set_pod(web("w", "a1"))
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term()}]}
    preferences = {"affinity": {"podAntiAffinity": preferred, "podAffinity": preferred}}
    assert fitting(made, **preferences) == EVERYWHERE


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


async def woken(made: ClusterState, clock: Clock, spec: dict[str, Any], change: Any) -> bool:
    """Whether a pod that does not fit now is tried again after `change`, and fits then."""
    made.set_pod(pod("waits", **spec))
    entry = await made.queue.pop()
    decision = finish(schedule(made, entry.pod))
    assert isinstance(decision, Unschedulable)
    made.queue.add_unschedulable(entry, decision)
    clock.now += 10
    change()
    async with asyncio.timeout(10):
        assert await made.queue.pop() is entry
    return isinstance(finish(schedule(made, entry.pod)), Scheduled)


async def test_a_matching_pod_wakes_pods_with_affinity() -> None:
    """A pod that comes, a pod that gets the label, and a namespace that gets it."""
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
    spec = near(term(namespaceSelector={"matchLabels": {"team": "red"}}))
    assert await woken(
        made, clock, spec, lambda: made.limits.set_namespace(namespace("bare", team="red"), namespace("bare"))
    )


async def test_a_change_of_its_own_labels_wakes_a_pod() -> None:
    """A pod that is repelled because of its label loses the label."""
    clock = Clock()
    made = cluster(clock)
    for name in EVERYWHERE:
        made.set_pod(pod(f"shy-{name}", node=name, phase="Running", **far(term(HOST))))
    waiting = pod("waits", labels={"app": "web"})
    free = msgspec.structs.replace(waiting, metadata=msgspec.structs.replace(waiting.metadata, labels={}))
    assert await woken(made, clock, {"labels": {"app": "web"}}, lambda: made.set_pod(free, waiting))


async def test_unrelated_pods_wake_no_pod() -> None:
    """Otherwise a large backlog would be scheduled again for each pod that starts."""
    clock = Clock()
    made = cluster(clock)
    made.set_pod(pod("waits", **near(term())))
    entry = await made.queue.pop()
    made.queue.add_unschedulable(entry, Rejected("refused", finish(schedule(made, entry.pod)).reasons))  # type: ignore[union-attr]
    clock.now += 10
    made.set_pod(pod("stranger", node="a1", phase="Running", labels={"app": "db"}))
    assert await due(made.queue) is None


def test_a_new_pod_is_compared_with_few_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand pending pods have terms of their own: a pod that starts is compared with some, not with all."""
    made = cluster()
    for number in range(1000):
        made.set_pod(pod(f"waits-{number}", **far({**term(), "labelSelector": {"matchLabels": {"app": f"a{number}"}}})))
    compared: list[Any] = []
    monkeypatch.setattr(PodTerm, "matches", lambda self, *_: compared.append(self) or False)
    made.set_pod(pod("starts", node="a1", phase="Running", labels={"app": "x"}), pod("starts", labels={"app": "x"}))
    assert 0 < len(compared) <= 64
