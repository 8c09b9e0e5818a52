"""Which pods are preempted: the least important ones on the cheapest node, and none for nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from allocation.names import CHARGED_TO, PREEMPTION_PROTECTION
from allocation.steps import finish
from cluster.disruption_budget import PodDisruptionBudget
from scheduler.preemption.choice import NoPreemption
from scheduler.preemption.node_search import Preemption
from scheduler.settings import PreemptionSettings
from tests.scheduler.state.test_gpu_quotas import gpu_quota
from tests.scheduler.support.builders import allocated, namespace, node, pod, state
from tests.scheduler.support.driving import gpu_queue
from tests.scheduler.support.preempting import HOUR, NOW, chooser_of

if TYPE_CHECKING:
    from scheduler.objects import Pod
    from scheduler.state.cluster_state import ClusterState


def chosen(made: ClusterState, preemptor: Pod, *budgets: PodDisruptionBudget, **more: Any) -> Preemption | NoPreemption:
    """Return the choice for a pod."""
    return finish(chooser_of(made, *budgets, **more).choose(preemptor))


def victims(made: ClusterState, preemptor: Pod, *budgets: PodDisruptionBudget, **more: Any) -> set[str] | None:
    """Return the names of the pods that have to go; None if none has to."""
    found = chosen(made, preemptor, *budgets, **more)
    return {each.pod.metadata.name for each in found.victims} if isinstance(found, Preemption) else None


def budget(
    name: str, *, allowed: int, fields: dict[str, Any] | None = None, desired: int = 0, expected: int = 0, **labels: str
) -> PodDisruptionBudget:
    """Return a budget for pods with these labels, with more `fields` and the pods that its status counts."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, **(fields or {})},
            "status": {"disruptionsAllowed": allowed, "desiredHealthy": desired, "expectedPods": expected},
        },
        PodDisruptionBudget,
    )


def full(*names: str, **priorities: int) -> ClusterState:
    """Return a state with one card on each node; each is filled by one pod of the given priority, named as its node."""
    made = state(*names, cards=1)
    for name in names:
        made.set_pod(allocated(f"on-{name}", node=name, memory=1000, priority=priorities.get(name, 0)))
    return made


WHOLE = pod("whole", memory=1000, priority=100)


def test_the_pod_of_the_lowest_priority_goes() -> None:
    """The node decides: its only card is that pod's."""
    made = full("a", "b", "c", a=5, b=-3, c=7)
    found = chosen(made, WHOLE)
    assert isinstance(found, Preemption)
    assert (found.node, [each.pod.metadata.name for each in found.victims]) == ("b", ["on-b"])
    assert [(charge.uuid, charge.memory_mib) for charge in found.charges] == [("GPU-b-0", 1000)]


@pytest.mark.parametrize("priority", [100, 101])
def test_pods_of_equal_or_higher_priority_stay(priority: int) -> None:
    """Strictly lower only."""
    assert victims(full("a", a=priority), WHOLE) is None


def test_one_pod_goes_rather_than_two_of_the_same_priority() -> None:
    """Few pods are cheaper."""
    made = state("one", "two", cards=1)
    made.set_pod(allocated("large", node="one", memory=800))
    for name in ("left", "right"):
        made.set_pod(allocated(name, node="two", memory=400))
    assert victims(made, pod("p", memory=700, priority=1)) == {"large"}


def test_two_small_pods_of_low_priority_go_rather_than_one_of_a_higher_one() -> None:
    """The highest priority comes first."""
    made = state("one", "two", cards=1)
    made.set_pod(allocated("important", node="one", memory=800, priority=5))
    for name in ("left", "right"):
        made.set_pod(allocated(name, node="two", memory=400))
    assert victims(made, pod("p", memory=1000, priority=10)) == {"left", "right"}


def test_among_equals_the_youngest_goes() -> None:
    """It loses the least work."""
    made = state("a", "b", cards=1)
    made.set_pod(allocated("old", node="a", memory=1000, status={"startTime": "2026-01-01T00:00:00Z"}))
    made.set_pod(allocated("young", node="b", memory=1000, status={"startTime": "2026-01-01T00:30:00Z"}))
    assert victims(made, WHOLE) == {"young"}


def test_a_pod_needs_a_victims_card_and_a_free_one() -> None:
    """Only the victim that is needed goes."""
    made = state("a")
    made.set_pod(allocated("victim", node="a", memory=1000))
    limits = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1000"}
    two = pod("two", priority=1, containers=[{"name": "main", "resources": {"limits": limits}}])
    found = chosen(made, two)
    assert isinstance(found, Preemption)
    assert {each.pod.metadata.name for each in found.victims} == {"victim"}
    assert {charge.uuid for charge in found.charges} == {"GPU-a-0", "GPU-a-1"}


def test_nobody_goes_where_pods_that_end_already_make_the_room() -> None:
    """Whatever their priority."""
    made = full("a", "b", a=0, b=900)
    made.set_pod(
        allocated("on-b", node="b", memory=1000, priority=900, deleted="2026-01-01T01:00:00Z"),
        allocated("on-b", node="b", memory=1000, priority=900),
    )
    found = chosen(made, WHOLE)
    assert isinstance(found, Preemption)
    assert (found.node, len(found.victims), found.leaving) == ("b", 0, {"uid-on-b"})


@pytest.mark.parametrize(("seconds", "is_awaited"), [(360, True), (361, False)])
def test_pod_that_will_end_too_late_is_not_awaited(seconds: int, *, is_awaited: bool) -> None:
    """A deletion may give a pod years, and an Eviction would not shorten them: another pod goes, or none."""
    made, deleted = state("a", "b", cards=1), f"{datetime.fromtimestamp(NOW + seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    made.set_pod(allocated("ends", node="a", memory=1000, deleted=deleted))
    made.set_pod(allocated("runs", node="b", memory=1000, priority=-1))
    assert victims(made, WHOLE) == (set() if is_awaited else {"runs"})
    made = state("a", cards=1)
    made.set_pod(allocated("ends", node="a", memory=1000, deleted=deleted))
    assert victims(made, WHOLE) == (set() if is_awaited else None)


@pytest.mark.parametrize("seconds", [360, 361])
def test_pod_of_the_same_quota_that_will_end_too_late_is_not_awaited(seconds: int) -> None:
    """Wherever it runs."""
    made, deleted = state("a", "b", cards=1), f"{datetime.fromtimestamp(NOW + seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 1}}))
    made.set_pod(allocated("ends", node="a", memory=1000, deleted=deleted))
    assert victims(made, WHOLE) == (set() if seconds == 360 else None)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"preemptionPolicy": "Never"}, "preemptionPolicy is Never"),
        ({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]}, "topologySpreadConstraints"),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
                    }
                }
            },
            "podAntiAffinity",
        ),
    ],
)
def test_some_pods_preempt_nobody(fields: dict[str, Any], why: str) -> None:
    """The reason is given."""
    found = chosen(full("a"), pod("p", memory=1000, priority=9, **fields))
    assert isinstance(found, NoPreemption)
    assert why in found.why


def test_preemption_can_be_switched_off() -> None:
    """The off-switch."""
    found = chosen(full("a"), WHOLE, enabled=False)
    assert isinstance(found, NoPreemption)
    assert "scheduler.preemption.enabled" in found.why


@pytest.mark.parametrize(
    ("where", "priority", "settings", "expected"),
    [
        ("default", 999_999_999, {}, {"on-a"}),
        ("default", 1_000_000_000, {}, None),
        ("default", 2_000_000_000, {}, None),
        ("kube-system", 2_000_000_000, {}, {"on-a"}),
        ("tranche-system", 2_000_001_000, {}, {"on-a"}),
        ("default", 51, {"highest_priority": 50}, None),
        ("default", 50, {"highest_priority": 50}, {"on-a"}),
        ("default", 2_000_001_000, {"highest_priority": 2**31 - 1}, {"on-a"}),
    ],
)
def test_outside_system_namespaces_pods_above_the_highest_priority_preempt_nobody(
    where: str, priority: int, settings: dict[str, int], expected: set[str] | None
) -> None:
    """Anybody who may create pods may name a PriorityClass of the system, unless a ResourceQuota forbids it."""
    preemptor = pod("p", memory=1000, priority=priority, namespace=where)
    assert victims(full("a"), preemptor, **settings) == expected
    if expected is None:
        highest = settings.get("highest_priority", 999_999_999)
        why = f"its priority {priority} is above scheduler.preemption.highest_priority ({highest})"
        assert why in str(chosen(full("a"), preemptor, **settings))


@pytest.mark.parametrize("highest", [-(2**31) - 1, 2**31])
def test_highest_priority_is_one_that_a_pod_can_have(highest: int) -> None:
    """Another number is refused at the start, with the setting's name."""
    with pytest.raises(ValueError, match="preemption.highest_priority"):
        PreemptionSettings(highest_priority=highest)


def test_nobody_is_preempted_in_vain() -> None:
    """Even an empty node would be too small, or another pod stays on the card."""
    assert victims(full("a"), pod("large", memory=1001, priority=9)) is None
    made = full("a")
    made.set_pod(allocated("stays", node="a", memory=1, priority=50))
    assert victims(made, pod("p", memory=1000, priority=9)) is None


@pytest.mark.parametrize(("age", "is_protected"), [(-1.0, True), (0.0, False)])
def test_a_protected_pod_goes_when_its_protection_is_over(age: float, *, is_protected: bool) -> None:
    """Protected by its annotation, from its creation."""
    made = state("a", cards=1)
    running = allocated("on-a", node="a", memory=1000)
    running.metadata.annotations[PREEMPTION_PROTECTION] = "30m"
    made.set_pod(running)
    assert (victims(made, WHOLE, now=NOW - HOUR / 2 + age) is None) is is_protected


def test_the_queue_of_a_pod_can_protect_it_for_a_minimal_run_time() -> None:
    """From its start."""
    made = state("a", cards=1)
    made.limits.set_queue(gpu_queue("calm", preemption={"minRuntimeSeconds": 60}))
    running = allocated("on-a", node="a", memory=1000, status={"startTime": "2026-01-01T00:59:30Z"})
    running.metadata.annotations[CHARGED_TO] = "calm"
    made.set_pod(running)
    assert victims(made, WHOLE) is None
    assert victims(made, WHOLE, now=NOW + 30) == {"on-a"}


@pytest.mark.parametrize(("allowed", "expected"), [(0, None), (1, {"on-a"})])
def test_disruption_budgets_are_never_violated(allowed: int, expected: set[str] | None) -> None:
    """The pod of a budget without disruptions left stays."""
    made = state("a", cards=1)
    made.set_pod(allocated("on-a", node="a", memory=1000, labels={"app": "db"}))
    assert victims(made, WHOLE, budget("db", allowed=allowed, app="db")) == expected


RIGID = budget("rigid", allowed=0, fields={"minAvailable": "100%"}, app="rigid")
VIOLATE: dict[str, Any] = {"rigid_budgets": "violate"}


def rigid(*names: str, priority: int = 0, **more: Any) -> ClusterState:
    """Return a state with one card on each node; each is filled by a pod of a rigid budget."""
    made = state(*names, cards=1)
    for name in names:
        labels = {"app": "rigid"}
        made.set_pod(allocated(f"on-{name}", node=name, memory=1000, priority=priority, labels=labels, **more))
    return made


@pytest.mark.parametrize(
    ("budgets", "is_rigid"),
    [
        ([RIGID], True),
        ([budget("none", allowed=0, fields={"maxUnavailable": 0}, app="rigid")], True),
        ([budget("all", allowed=0, desired=2, expected=2, app="rigid")], True),
        ([budget("two", allowed=1, app="rigid"), budget("budgets", allowed=1, app="rigid")], True),
        ([budget("used-up", allowed=0, desired=1, expected=2, app="rigid")], False),
        ([budget("not-counted", allowed=0, app="rigid")], False),
    ],
)
def test_pod_that_no_budget_ever_lets_go_is_preempted_where_the_setting_says_so(
    budgets: list[PodDisruptionBudget], *, is_rigid: bool
) -> None:
    """By default it stays, and so does one whose budget permits nothing at the moment."""
    assert victims(rigid("a"), WHOLE, *budgets) is None
    found = chosen(rigid("a"), WHOLE, *budgets, **VIOLATE)
    assert isinstance(found, Preemption) is is_rigid
    if isinstance(found, Preemption):
        assert [each.violates for each in found.victims] == [True]


def test_pods_of_rigid_budgets_are_preempted_last() -> None:
    """After pods of any priority, and after those that end slowly: on the same node, on another, and in its own way."""
    for other in ({"priority": 99}, {"priority": 99, "terminationGracePeriodSeconds": 10**6}):
        made = state("a", "b", cards=1)
        made.set_pod(allocated("rigid", node="a", memory=1000, labels={"app": "rigid"}))
        made.set_pod(allocated("other", node="b", memory=1000, **other))
        assert victims(made, WHOLE, RIGID, **VIOLATE) == {"other"}
    made = state("a", cards=2)
    made.set_pod(allocated("rigid", node="a", memory=1000, labels={"app": "rigid"}))
    made.set_pod(allocated("other", node="a", memory=1000, priority=99, card=1))
    assert victims(made, WHOLE, RIGID, **VIOLATE) == {"other"}


def test_pods_of_other_schedulers_and_of_the_system_stay() -> None:
    """Only pods of this scheduler outside the system namespaces are evicted."""
    made = state("a", "b", cards=1)
    made.set_pod(allocated("foreign", node="a", memory=1000, schedulerName="other"))
    made.set_pod(allocated("system", node="b", memory=1000, namespace="kube-system"))
    assert victims(made, WHOLE) is None


@pytest.mark.parametrize(
    ("reach", "expected"),
    [("Cluster", "elsewhere"), ("Namespace", "neighbour"), ("Queue", "colleague"), ("Never", None)],
)
def test_the_reach_of_a_queue(reach: str, expected: str | None) -> None:
    """The cheapest pod within reach goes."""
    made = state("a", "b", "c", cards=1)
    for name in ("default", "other"):
        made.limits.set_namespace(namespace(name))
    made.limits.set_queue(gpu_queue("q", preemption={"reach": reach}))
    made.set_pod(allocated("elsewhere", node="a", memory=1000, namespace="other", priority=1))
    made.set_pod(allocated("neighbour", node="b", memory=1000, priority=2))
    colleague = allocated("colleague", node="c", memory=1000, namespace="other", priority=3)
    colleague.metadata.annotations[CHARGED_TO] = "q"
    made.set_pod(colleague)
    preemptor = pod("p", memory=1000, priority=9, labels={"gpu.scheduling/queue": "q"})
    assert victims(made, preemptor) == ({expected} if expected else None)


def test_a_queue_of_a_lower_tier_preempts_nobody_of_a_higher_one() -> None:
    """Otherwise its victims, created again, would take the cards back."""
    made = state("a", cards=1)
    made.limits.set_queue(gpu_queue("high", priority=5))
    running = allocated("on-a", node="a", memory=1000)
    running.metadata.annotations[CHARGED_TO] = "high"
    made.set_pod(running)
    assert victims(made, WHOLE) is None


# ---- quotas ----------------------------------------------------------------------------------------------------------


def in_namespace(
    made: ClusterState, name: str, *, memory: int = 500, on: str = "a", card: int = 0, **more: Any
) -> None:
    """Let a pod run."""
    made.set_pod(allocated(name, node=on, memory=memory, card=card, **more))


def test_an_exceeded_quota_is_cured_by_pods_of_the_same_namespace_only() -> None:
    """Those elsewhere give no relief; cards are free."""
    made = state("a", "b")
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 1000}}))
    in_namespace(made, "low")
    in_namespace(made, "high", card=1, priority=50)
    in_namespace(made, "foreign", on="b", namespace="other")
    assert victims(made, pod("p", memory=500, priority=9)) == {"low"}
    made.drop_pod(made.running["uid-low"])
    in_namespace(made, "equal", priority=9)
    assert victims(made, pod("p", memory=500, priority=9)) is None


def test_the_victim_of_a_quota_may_run_on_another_node() -> None:
    """The card that it gives back is not needed."""
    made = state("a", "b", cards=1)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 1}}))
    in_namespace(made, "low", memory=1000)
    found = chosen(made, pod("p", memory=1000, priority=9))
    assert isinstance(found, Preemption)
    assert (found.node, [each.pod.metadata.name for each in found.victims]) == ("b", ["low"])


def test_nobody_goes_where_own_pods_that_end_already_give_back_the_quota() -> None:
    """On whatever node, and also if they are of a higher priority; those of others do not help."""
    made = state("a", "b", cards=1)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 2}}))
    ends = {"memory": 100, "priority": 90, "deleted": "2026-01-01T01:00:00Z"}
    in_namespace(made, "low", memory=100)
    in_namespace(made, "foreign", namespace="other", **ends)
    in_namespace(made, "own", on="b", memory=100, priority=90)
    assert victims(made, pod("p", memory=500, priority=9)) == {"low"}
    made.set_pod(allocated("own", node="b", **ends), made.running["uid-own"])
    found = chosen(made, pod("p", memory=500, priority=9))
    assert isinstance(found, Preemption)
    assert (found.victims, found.leaving >= {"uid-own"}) == ((), True)


def test_a_pod_may_need_a_victims_card_and_anothers_quota() -> None:
    """Both go: one for the card, one for the quota."""
    made = state("a", "b", cards=1)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpu": 1}}))
    in_namespace(made, "own", memory=1000, on="b", priority=5)
    in_namespace(made, "foreign", memory=1000, namespace="other")
    assert victims(made, pod("p", memory=1000, priority=9)) in ({"own"}, {"own", "foreign"})
    in_namespace(made, "pinned", memory=1, on="b", priority=90, namespace="other")
    assert victims(made, pod("p", memory=1000, priority=9)) == {"own", "foreign"}


def test_max_pods_full_and_a_victim() -> None:
    """One pod goes, and one may come."""
    made = state("a")
    made.limits.set_gpu_quota(gpu_quota(total={"maxPods": 2}))
    in_namespace(made, "low", priority=1)
    in_namespace(made, "lower", card=1)
    assert victims(made, pod("p", memory=100, priority=9)) == {"lower"}


def test_a_queue_that_is_full_is_cured_by_its_own_pods() -> None:
    """maxInstances, and limits."""
    made = state("a")
    made.limits.set_queue(gpu_queue("q", maxInstances=1))
    own = allocated("own", node="a", memory=100, namespace="other")
    own.metadata.annotations[CHARGED_TO] = "q"
    made.set_pod(own)
    in_namespace(made, "neighbour")
    preemptor = pod("p", memory=100, priority=9, labels={"gpu.scheduling/queue": "q"})
    assert victims(made, preemptor) == {"own"}


def test_a_pod_that_alone_exceeds_a_quota_preempts_nobody() -> None:
    """No pod whose end would help."""
    made = full("a")
    made.limits.set_gpu_quota(gpu_quota(single={"limits": {"nvidia.com/gpumem": 999}}))
    found = chosen(made, WHOLE)
    assert isinstance(found, NoPreemption)
    assert "spec.single.limits" in found.why


# ---- other resources, and purity -----------------------------------------------------------------------------------


def test_victims_also_make_room_for_cpu() -> None:
    """The card has room, and the node has no CPU left."""
    made = state("a", cards=1)
    made.set_node(node("a", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}))
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "100"}
    container = {"name": "main", "resources": {"limits": limits, "requests": {"cpu": "3", **limits}}}
    made.set_pod(allocated("busy", node="a", memory=100, containers=[container]))
    made.set_pod(allocated("idle", node="a", memory=100))
    assert victims(made, pod("p", priority=9, containers=[container])) == {"busy"}


def test_a_choice_changes_nothing() -> None:
    """Neither the ledger nor the nodes, nor what the quotas leave."""
    made = full("a", "b", a=1, b=2)
    made.limits.set_gpu_quota(gpu_quota(total={"limits": {"nvidia.com/gpumem": 2000}}))

    def seen() -> tuple[Any, ...]:
        return (
            made.ledger.used.tobytes(),
            sorted((each.uid, each.charges) for each in made.ledger.reservations()),
            made.quotas.headroom("default"),
            made.ledger.changes.state,
            [made.node_cache.pods_of(name) for name in ("a", "b")],
        )

    before = seen()
    assert victims(made, WHOLE) == {"on-a"}
    assert seen() == before
