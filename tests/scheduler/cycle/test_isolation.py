"""Pods that chose what enforces their limits: where they run, what their Binding carries, and why others wait."""

from typing import Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.isolation import Isolation
from allocation.names import ALLOCATION, HAMI_REGISTER, ISOLATION, LIMITS
from allocation.node_isolation import IsolationProblem
from allocation.steps import finish
from allocation.wire import record
from cluster.gpu_node_status import GpuNodeStatus, status_of
from cluster.metadata import ObjectMeta
from scheduler.binding.binder import allocation_annotations
from scheduler.cycle.result import Scheduled, Unschedulable
from scheduler.objects import Pod
from scheduler.state.cluster_state import ClusterState
from tests.allocation.support.mig_cards import instance, mig_card
from tests.scheduler.support import extending
from tests.scheduler.support.builders import node, pod, state, status
from tests.scheduler.support.claims import claim, claiming
from tests.scheduler.support.explaining import explained
from tests.scheduler.support.preferring import HOST_NAME, PREFERRED, in_
from tests.scheduler.support.scheduling import schedule

OLD_DRIVER = IsolationProblem("cuda", "the driver must be 615 or newer, and is 595.91")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_APART = {"podAntiAffinity": {_REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}}

_NEAR_AND_APART = {**_APART, "nodeAffinity": {PREFERRED: [in_(HOST_NAME, "elsewhere", weight=1)]}}


def isolated(name: str, isolation: str, **more: Any) -> Pod:
    """Return a pod that requests 100 MiB and chose an isolation."""
    return pod(name, memory=100, annotations={ISOLATION: isolation}, **more)


def reporting(name: str, *offered: str, problems: tuple[IsolationProblem, ...] = ()) -> GpuNodeStatus:
    """Return what the agent of a node with these isolations reports."""
    reported = status(name)
    assert reported.status is not None
    reported.status.isolation = ["none", *offered]
    reported.status.isolation_problems = problems
    return reported


def cluster(**offered: tuple[str, ...]) -> ClusterState:
    """Return a cluster with a node for each list of isolations."""
    made = state()
    for name, words in offered.items():
        made.set_node(node(name))
        made.agent_reports.set(reporting(name, *words))
    return made


@pytest.mark.parametrize("isolation", ["cuda", "mps", "hami-core"])
@pytest.mark.parametrize(
    ("spec", "path"), [({}, "cached"), ({"affinity": _APART}, "cached"), ({"affinity": _NEAR_AND_APART}, "full")]
)
def test_a_pod_gets_a_node_that_can_enforce_its_limits(isolation: str, spec: dict[str, Any], path: str) -> None:
    """However the node is found; the others would take it by their cards."""
    made = cluster(first=(), second=tuple({"cuda", "mps", "hami-core"} - {isolation}), third=(isolation,))
    plain = finish(schedule(made, pod("b", memory=100)))
    assert isinstance(plain, Scheduled)
    assert plain.node == "first"
    chosen = finish(schedule(made, isolated("a", isolation, **spec)))
    assert isinstance(chosen, Scheduled), chosen
    assert (chosen.node, chosen.path) == ("third", path)


def test_a_node_that_cannot_enforce_them_is_rejected_with_what_its_agent_says() -> None:
    """`/filter` rejects with the same words, for good: no pod that ends changes a driver."""
    made = cluster(silent=())
    made.set_node(node("old"))
    made.agent_reports.set(reporting("old", "mps", problems=(OLD_DRIVER,)))
    waiting = isolated("a", "cuda")
    result = finish(schedule(made, waiting))
    assert isinstance(result, Unschedulable)
    assert result.reasons == {"IsolationUnavailable"}
    for name, words in (
        ("old", "isolation cuda: the driver must be 615 or newer, and is 595.91"),
        ("silent", "isolation cuda: no agent of the node offers it"),
    ):
        assert words in result.note
        answer = extending.filtered(extending.extending(made), waiting, name)
        assert words in answer["failedAndUnresolvableNodes"][name]


def test_explain_says_what_must_enforce_the_limits() -> None:
    """With the nodes that can, and what the others lack."""
    made = cluster(able=("cuda",), unable=())
    shown = explained(made, isolated("a", "cuda"))
    assert shown.policy is not None
    assert shown.policy.nodes.endswith("; only nodes that can enforce its limits by cuda")
    assert {each.name: each.code for each in shown.nodes} == {"able": "", "unable": "IsolationUnavailable"}
    plain = explained(made, pod("b", memory=100)).policy
    assert plain is not None
    assert "enforce" not in plain.nodes


def test_a_report_counts_at_the_next_decision() -> None:
    """The daemon ends and starts again while the node's cards stay the same: cached rankings follow."""
    made, fits = cluster(n=("mps",)), []
    for name, offered in (("a", ("mps",)), ("b", ()), ("c", ("mps", "cuda"))):
        made.agent_reports.set(reporting("n", *offered))
        fits.append(isinstance(finish(schedule(made, isolated(name, "mps"))), Scheduled))
    assert fits == [True, False, True]


def test_what_an_agent_reports_has_bounds() -> None:
    """An agent of another version, or a hostile one, may report unknown words and long texts."""
    many = tuple(IsolationProblem(word, "x" * 100_000) for word in ("cuda", "cuda", "time-slicing", "none"))
    reported = reporting("n", "time-slicing", "mps", problems=many).inventory().isolation
    assert reported.offered == {Isolation.MPS}
    assert {each.isolation for each in reported.problems} == {"cuda"}
    assert len(reported.rejection(Isolation.CUDA)) < 300


def test_hamis_plugin_loads_its_library_itself() -> None:
    """Its nodes offer `hami-core` without an agent, and nothing else."""
    made = state()
    register = "GPU-n1-0,10,1000,100,NVIDIA-A100,0,true:"
    made.set_node(node("n1", metadata={"name": "n1", "annotations": {HAMI_REGISTER: register}}))
    assert isinstance(finish(schedule(made, isolated("a", "hami-core"))), Scheduled)
    result = finish(schedule(made, isolated("b", "cuda")))
    assert isinstance(result, Unschedulable)
    assert result.reasons == {"IsolationUnavailable"}


@pytest.mark.parametrize("isolation", ["mig", "cuda"])
def test_an_isolation_of_shared_cards_gets_no_instance_and_mig_nothing_else(isolation: str) -> None:
    """The driver limits no instance; an instance is a limit by itself. Without a choice both cards would do."""
    made = state()
    made.set_node(node("n"))
    inventory = reporting("n", "cuda").inventory()
    for name, shares in (("both", 2), ("one", 1)):
        cards = (*inventory.cards[:1], mig_card(9, node="n"), instance(9, "1g.5gb", 0, node="n"))
        kept = tuple(card for card in cards if shares == 2 or bool(card.instance) != (isolation == "mig"))
        reported = GpuNodeStatus(ObjectMeta(name="n"), status_of(msgspec.structs.replace(inventory, cards=kept)))
        assert reported.status is not None
        reported.status.isolation = ["none", "cuda", "mig"]
        made.agent_reports.set(reported)
        chosen = finish(schedule(made, isolated(name, isolation)))
        if shares == 1:
            assert isinstance(chosen, Unschedulable)
            continue
        assert isinstance(chosen, Scheduled), chosen
        assert chosen.allocation is not None
        (share,) = chosen.allocation.containers["main"]
        assert bool(share.parent) == (isolation == "mig")


def test_the_binding_carries_the_limits_of_the_isolation() -> None:
    """They come with the allocation, in one write."""
    made = cluster(n=("cuda", "mps", "hami-core"))
    expected = {
        "cuda": {"nvidia-gpu-memory-limit.gpu.scheduling/main": "100"},
        "mps": {"cuda-mps-pinned-device-mem-limit.gpu.scheduling/main": "0=100M"},
        "hami-core": {"cuda-visible-devices.gpu.scheduling/main": "0"},
    }
    for isolation, values in expected.items():
        chosen = finish(schedule(made, isolated(isolation, isolation)))
        assert isinstance(chosen, Scheduled)
        written = allocation_annotations(chosen, unix_seconds=0)
        assert values.items() <= written.items()
        foreign = (
            {key for each in expected.values() for key in each}
            - values.keys()
            - {"cuda-visible-devices.gpu.scheduling/main"}
        )
        assert written.keys().isdisjoint(foreign)


async def test_the_bind_verb_carries_them_too() -> None:
    """In extender mode the Binding is the same."""
    made, api = cluster(n=("cuda",)), extending.Bindings()
    waiting = isolated("a", "cuda")
    api.pods["a"] = waiting
    made.set_pod(waiting)
    assert await extending.bound(extending.extending(made, api), waiting, "n") == ""
    (binding,) = api.written
    assert binding["metadata"]["annotations"]["nvidia-gpu-memory-limit.gpu.scheduling/main"] == "100"


def test_a_static_allocation_needs_a_node_that_can_enforce_it() -> None:
    """A person chose the cards, and the limits must hold all the same."""
    made = cluster(able=("cuda",), unable=())
    for name in ("able", "unable"):
        text = record.encode(Allocation(name, {"main": (CardShare(f"GPU-{name}-1", 1, 100, 0),)}))
        result = finish(
            schedule(made, pod(f"on-{name}", memory=100, annotations={ALLOCATION: text, ISOLATION: "cuda"}))
        )
        assert isinstance(result, Scheduled) == (name == "able")


def test_a_pod_whose_isolation_cannot_limit_its_claim_is_held() -> None:
    """Admission refuses it; a pod that admission did not see is not placed without its limits."""
    made = cluster(n=("hami-core",))
    given = claim("slices", exclusivity="Shared", memoryMiB=100)
    made.set_claim(given)
    both = claiming("a", given, containers=("one", "two"), annotations={ISOLATION: "hami-core"})
    result = finish(schedule(made, both))
    assert isinstance(result, Unschedulable)
    assert "2 containers of the pod share GpuClaim slices" in result.note
    one = claiming("b", given, annotations={ISOLATION: "hami-core"})
    assert isinstance(finish(schedule(made, one)), Scheduled)


def test_a_pod_that_asks_for_instances_and_for_limits_above_its_request_is_held() -> None:
    """Admission refuses it; written by another way it must not get a part of a card, which nothing would limit."""
    asking = pod("a", memory=100, cores=10, annotations={ISOLATION: "mig", LIMITS: '{"main":{"gpucores":60}}'})
    result = finish(schedule(cluster(n=("none", "mig")), asking))
    assert isinstance(result, Unschedulable)
    assert "isolation mig asks for MIG instances, whose size is fixed" in result.note


def test_a_pod_whose_isolation_cannot_be_read_is_held() -> None:
    """It is none of those that are known, so nothing is known to enforce its limits."""
    result = finish(schedule(cluster(n=("cuda",)), isolated("a", "cud")))
    assert isinstance(result, Unschedulable)
    assert "it must be one of none, hami-core, mps, mig, cuda" in result.note
