"""The mix of what pods with cards request, from the pods that have cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocation.inventory import Card, NodeInventory
from allocation.names import CARD_POLICY, MODE, USE_TYPES
from allocation.steps import finish
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.state.workload import Workload
from tests.scheduler.support.builders import allocated, node, pod, state, status
from tests.scheduler.support.worlds import World

if TYPE_CHECKING:
    from allocation.placement.host import Mix
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState

GIB = 1 << 30


def mix(made: ClusterState) -> Mix:
    """Return the mix, once all nodes are known."""
    finish(made.workload.prepare())
    found = made.workload.mix
    assert found is not None
    return found


def of_model(name: str, model: str) -> GpuNodeStatus:
    """Return what the agent of a node with two cards of a model reports."""
    cards = tuple(Card(f"GPU-{name}-{index}", index, 1000, slots=4, model=model) for index in range(2))
    return GpuNodeStatus(ObjectMeta(name=name), status_of(NodeInventory(name, cards)))


def using(
    name: str,
    *,
    cpu: str,
    memory: str,
    mib: int = 1000,
    card: int = 0,
    models: str = "",
    selector: dict[str, str] | None = None,
    affinity: dict[str, Any] | None = None,
    on: str = "n0",
) -> Pod:
    """Return a pod that runs on a node with a card and these resources, and accepts these models and nodes."""
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(mib), "cpu": cpu, "memory": memory}
    containers = [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]
    spec = {"containers": containers, "nodeSelector": selector or {}, "affinity": affinity}
    made = allocated(name, node=on, memory=mib, card=card, **spec)
    if models:
        made.metadata.annotations[USE_TYPES] = models
    return made


def test_an_empty_cluster_has_the_mix_of_its_nodes() -> None:
    """64 cores and 256 GiB for two cards, in steps of a fifth."""
    found = mix(state("n0"))
    assert found.cpu == pytest.approx(32_000, rel=0.1)
    assert found.memory == pytest.approx(128 * GIB, rel=0.1)
    assert found.prices == {}


@pytest.mark.parametrize("cards", [1, 8])
def test_cards_that_a_node_gets_or_loses_later_count(cards: int) -> None:
    """As MIG instances do that an agent creates: a restart would count them."""
    made, restarted = state("n0", "n1"), state("n1")
    mix(made)
    restarted.set_node(node("n0"))
    for each in (made, restarted):
        each.agent_reports.set(status("n0", cards=cards))
    assert mix(made) == mix(restarted) != mix(state("n0", "n1"))


def test_resources_that_a_node_gets_later_count() -> None:
    """Here half of its CPU is not there any more."""
    made = state("n0")
    before = mix(made)
    made.set_node(node("n0", status={"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}}))
    assert mix(made).cpu == pytest.approx(before.cpu / 2, rel=0.2)


def test_pods_with_cards_decide_it() -> None:
    """By the cards that they have, of which a part counts as such; the nodes hardly count any more."""
    made = state("n0")
    made.set_pod(using("a", cpu="6", memory="40Gi"))
    made.set_pod(using("b", cpu="2", memory="10Gi", mib=250, card=1))
    found = mix(made)
    assert found.cpu == pytest.approx(8_000 / 1.25, rel=0.15)
    assert found.memory == pytest.approx(50 * GIB / 1.25, rel=0.15)


def test_pods_without_cards_do_not_count() -> None:
    """They go where they strand nothing, whatever they request."""
    made = state("n0")
    before = mix(made)
    containers = [{"name": "main", "resources": {"requests": {"cpu": "50"}}}]
    made.set_pod(pod("a", node="n0", phase="Running", containers=containers))
    assert mix(made) == before


def test_pods_that_wait_do_not_count() -> None:
    """Nobody moves the mix by pods that have nothing."""
    made = state("n0")
    before = mix(made)
    made.set_pod(pod("waits", memory=100))
    assert mix(made) is before


def test_nodes_are_read_in_steps() -> None:
    """Once: what is read later has been read before."""
    workload = state(*(f"n{number}" for number in range(64))).workload
    assert len(list(workload.prepare())) > 1
    assert list(workload.prepare()) == []


def test_a_pod_that_ends_counts_no_more() -> None:
    """Neither do its cards; a mix that is the same again is the same object, so that no ranking is computed again."""
    made = state("n0")
    before, ends = mix(made), using("a", cpu="1", memory="1Gi")
    made.set_pod(ends)
    assert mix(made) != before
    made.drop_pod(ends)
    back = mix(made)
    assert back == before
    made.workload._is_current = False
    assert mix(made) is back


def by_label(label: str, operator: str = "In", *values: str) -> dict[str, Any]:
    """Return the affinity of a pod that may only run on nodes with a label."""
    expression = {"key": label, "operator": operator, "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def labelled(**models: str) -> ClusterState:
    """Return nodes with two cards of these models, which a label tells; that of an H100 has another label, too."""
    made = state()
    for name, model in models.items():
        labels = {"card": model, "zone": "a"} | ({"fast": "yes"} if model == "H100" else {})
        made.set_node(node(name, metadata={"name": name, "labels": labels}))
        made.agent_reports.set(of_model(name, model))
    return made


@pytest.mark.parametrize(
    "named",
    [
        {"models": "H100"},
        {"selector": {"card": "H100"}},
        {"affinity": by_label("card", "In", "H100")},
        {"affinity": by_label("fast", "Exists")},
        {"affinity": by_label("card", "NotIn", "T4"), "selector": {"zone": "a"}},
        {"affinity": by_label("card", "In", "H100", "T4"), "models": "H100"},
    ],
    ids=["annotation", "selector", "affinity", "label", "affinity and selector", "affinity and annotation"],
)
def test_models_are_dear_that_pods_depend_on(named: dict[str, Any]) -> None:
    """The share of requests that only a model satisfies, by its share of the cards and by the part that is free."""
    made = labelled(n0="H100", n1="T4", n2="T4", n3="T4", n4="H100", n5="H100", n6="H100", n7="H100")
    made.set_pod(using("a", cpu="1", memory="1Gi", **named))
    made.set_pod(using("b", cpu="1", memory="1Gi", card=1, selector={"zone": "a"}, affinity=by_label("zone", "Exists")))
    assert mix(made).prices == {"H100": pytest.approx(0.5 / (5 / 8) / (1 - 2 / 10), rel=0.25)}


def test_a_model_is_dearer_the_fewer_of_its_cards_are_free() -> None:
    """Up to a card for each card: the last one is missing for a pod that accepts no other."""
    made = labelled(**{f"n{number}": "H100" if number < 4 else "T4" for number in range(8)})
    runs = [using(f"a{at}", cpu="1", memory="1Gi", on=f"n{at // 2}", card=at % 2) for at in range(16)]
    runs[0].metadata.annotations[USE_TYPES] = "H100"
    for each in (*runs[8:], runs[0]):
        made.set_pod(each)
    prices = [mix(made).prices["H100"]]
    for each in runs[1:8]:
        made.set_pod(each)
        prices.append(mix(made).prices["H100"])
    assert prices == sorted(prices)
    assert prices[0] == pytest.approx(1 / 9 / 0.5 / (7 / 8), rel=0.25)
    assert prices[-1] == 1.0
    for each in runs[1:3]:
        made.drop_pod(each)
    assert mix(made).prices["H100"] < 1.0


@pytest.mark.parametrize(
    "annotations", [{USE_TYPES: "H100", CARD_POLICY: "nonsense"}, {MODE: "hami-core"}], ids=["unreadable", "mode"]
)
def test_what_says_nothing_of_models_makes_none_dear(annotations: dict[str, str]) -> None:
    """An annotation that cannot be read was written after the pod was placed; a mode is not a model."""
    made = state()
    for name, model in (("n0", "H100"), ("n1", "T4")):
        made.set_node(node(name))
        made.agent_reports.set(of_model(name, model))
    runs = using("a", cpu="1", memory="1Gi")
    runs.metadata.annotations |= annotations
    made.set_pod(runs)
    assert mix(made).prices == {}


def test_restrictions_are_kept_while_they_are_few() -> None:
    """Users can write any number; each is read again once other nodes have cards."""
    made = state("n0")
    mix(made)
    models = made.workload._models
    for number in range(65):
        assert models.of(using("a", cpu="1", memory="1Gi", selector={"key": str(number)})) == frozenset()
        assert len(models._of_nodes) == number % 64 + 1
    made.set_node(node("n1"))
    made.agent_reports.set(of_model("n1", "T4"))
    mix(made)
    assert not models._of_nodes


def test_equal_selectors_are_not_equal_restrictions() -> None:
    """Pods that differ in their affinity accept different models."""
    made, zone = labelled(n0="H100", n1="T4"), {"zone": "a"}
    of = made.workload._models.of
    for model in ("H100", "T4"):
        asks = using("a", cpu="1", memory="1Gi", selector=zone, affinity=by_label("card", "In", model))
        assert of(asks) == {model}


def test_a_node_that_does_not_exist_strands_nothing() -> None:
    """As those that an autoscaler asks about."""
    assert min(state("n0").workload.free("new")) > 1 << 39


@given(st.integers(0, 1 << 32))
def test_a_restart_begins_with_the_same_mix(seed: int) -> None:
    """It is counted from the pods that have cards, in any order, and not kept."""
    world = World(seed)
    made = world.state
    again = Workload(made.ledger, made.node_cache, made.settings, points=300.0)
    for requested in reversed(made.workload._pods.values()):
        again._add(requested, 1)
    for name in made.ledger.nodes:
        again.touch(name)
    finish(again.prepare())
    finish(made.workload.prepare())
    assert again.mix == made.workload.mix
