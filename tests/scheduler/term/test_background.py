"""A term as the process builds it: what it does beside scheduling.

Each test fails without the line of `scheduler/term_builder.py` or `scheduler/informers.py` that connects its part.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from allocation.bindings.binding import FindBindings
from allocation.names import CLAIM, HAMI_LOCK
from allocation.settings import BindingSettings
from allocation.steps import finish
from scheduler.api.request_body import Manifests
from scheduler.observation_settings import MeasurementSettings
from scheduler.settings import NO_PREFERENCES, PreemptionSettings, ScoreWeights
from tests.allocation.support.mig_cards import mig_card
from tests.scheduler.support import storage
from tests.scheduler.support.terms import NAMESPACE, Cluster, leading


async def test_objects_that_a_term_reads_are_frozen(cluster: Cluster) -> None:
    """Once, before it decides, so that full garbage collections do not visit them."""
    async with leading(cluster):
        assert cluster.settle.call_count == 1


async def test_mig_instance_is_requested(cluster: Cluster) -> None:
    """From the agent of the node, by the spec of its GpuNodeStatus."""
    cluster.node("n0", mig_card(0, by="agent"))
    async with leading(cluster):
        cluster.pod("p", memory=4000, annotations={"nvidia.com/vgpu-mode": "mig"})
        await cluster.wrote("PATCH", "/gpunodestatuses/n0")


async def test_use_of_shares_is_read_from_agents(cluster: Cluster) -> None:
    """Of a node without an agent it says so."""
    async with leading(cluster, measurements=MeasurementSettings(read_seconds=0.02)):
        cluster.pod("p")
        node = (await cluster.placed("p"))["spec"]["nodeName"]
        use = cluster.term.use
        assert use is not None
        await cluster.until(lambda: "no agent" in use.problem(node, f"GPU-{node}-0"), "reading of the node")
        assert cluster.term.queries.use is use


async def test_pod_whose_card_is_missing_is_deleted_if_that_is_the_policy(cluster: Cluster) -> None:
    """By its UID, with an event."""
    async with leading(
        cluster, missing_devices="delete", missing_devices_delay_seconds=0.0, missing_devices_period_seconds=0.02
    ):
        cluster.pod("p", annotations={"nvidia.com/use-gpuuuid": "GPU-n0-1"})
        await cluster.placed("p")
        cluster.node("n0", count=1)
        await cluster.event("DeviceMissing")
        await cluster.wrote("DELETE", "/pods/p")


async def test_cards_are_held_for_a_pod_that_has_waited_too_long(cluster: Cluster) -> None:
    """An event says that they are, and another one that they are not any more, after the time of the setting."""
    async with leading(cluster, patience_seconds=0.05, hold_idle_seconds=0.05):
        for number in range(2):
            cluster.pod(
                f"slice-{number}", namespace="other", annotations={"nvidia.com/use-gpuuuid": f"GPU-n0-{number}"}
            )
            await cluster.placed(f"slice-{number}", "other")
        cluster.pod("whole", memory=None)
        await cluster.waits("whole", "no available node")
        await cluster.event("CardsHeld")
        await cluster.event("CardsReleased")


async def test_pod_of_lower_priority_is_evicted_unless_a_budget_protects_it(cluster: Cluster) -> None:
    """The budgets are those of the API server, and the preemptor is nominated with the leader's token."""
    cluster.node("n0", count=1)
    cluster.node("n1", count=1)
    budget = {
        "metadata": {"name": "keeps", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}},
        "status": {"disruptionsAllowed": 0},
    }
    cluster.api.put("poddisruptionbudgets", budget)
    async with leading(cluster):
        for name, where in (("kept", "n0"), ("other", "n1")):
            cluster.pod(name, memory=None, labels={"app": name}, nodeSelector={"kubernetes.io/hostname": where})
            await cluster.placed(name)
        for name, where, priority in (("urgent", "n0", 2000), ("next", "n1", 1000)):
            cluster.pod(name, memory=None, priority=priority, nodeSelector={"kubernetes.io/hostname": where})
        # The more important pod comes first, and has been evaluated without result when the other's victim goes.
        await cluster.wrote("POST", "/pods/other/eviction")
        assert ("POST", "/api/v1/namespaces/default/pods/kept/eviction") not in cluster.api.requests
        cluster.api.remove("poddisruptionbudgets", "keeps", NAMESPACE)
        await cluster.wrote("POST", "/pods/kept/eviction")
        assert cluster.shown("urgent")["status"]["nominatedNodeName"] == "n0"
        await cluster.event("Preempted")
        cluster.end("kept")
        await cluster.placed("urgent")


async def test_a_simulated_pod_has_the_priority_of_its_class(cluster: Cluster) -> None:
    """The scheduler watches the PriorityClasses: one that does not exist is refused, as at creation."""
    cluster.api.put("priorityclasses", {"metadata": {"name": "high"}, "value": 1000})

    def error_of(name: str) -> str | None:
        shown = finish(cluster.term.queries.simulate(_manifests(priorityClassName=name), lambda _pod, **_others: ()))
        return shown.error.type if shown.error is not None else None

    async with leading(cluster):
        assert (error_of("high"), error_of("gone")) == (None, "NotAdmitted")
        cluster.api.remove("priorityclasses", "high", "")
        await cluster.until(lambda: error_of("high") == "NotAdmitted", "the end of the class")


async def test_admission_of_a_simulated_pod_knows_the_gpubindings(cluster: Cluster) -> None:
    """Those that the scheduler has, by application."""
    spec = {"uuid": "GPU-n0-0", "appName": "chat", "podSelector": {}}
    cluster.api.put("gpubindings", {"metadata": {"name": "of-chat"}, "spec": spec})
    known: dict[str, list[str]] = {}

    def admit(_pod: dict[str, Any], *, find_bindings: FindBindings, **_others: Any) -> tuple[str, ...]:
        known.update({app: [each.name for each in find_bindings(app)] for app in ("chat", "other")})
        return ()

    async with leading(cluster, bindings=BindingSettings(mode="labelled")):
        finish(cluster.term.queries.simulate(_manifests(), admit))
        assert known == {"chat": ["of-chat"], "other": []}


def _manifests(**spec: Any) -> Manifests:
    """Return the manifest of a pod without a GPU."""
    fields = {"schedulerName": "tranche", "containers": [{"name": "main"}], **spec}
    return Manifests({"metadata": {"name": "p"}, "spec": fields})


async def test_without_preemption_nobody_is_evicted_and_budgets_are_not_read(cluster: Cluster) -> None:
    """The setting switches both off."""
    async with leading(cluster, preemption=PreemptionSettings(enabled=False)):
        assert "poddisruptionbudgets" not in [each.plural for each in cluster.term._informers]


async def test_term_ends_when_its_ledger_differs_from_a_recount(cluster: Cluster) -> None:
    """As often as the settings say; Bindings in flight do not count, and a drift in a quota does."""
    released = cluster.api.held["/binding"] = asyncio.Event()
    comparisons = "tranche_scheduler_ledger_comparisons_total"
    async with leading(cluster, recount_seconds=0.02):
        cluster.pod("p")
        await cluster.until(lambda: bool(cluster.term.ledger.used.any()), "charge")
        before = cluster.metric(comparisons)
        await cluster.until(lambda: cluster.metric(comparisons) > before + 2, "comparisons")
        cluster.api.late.add("pods")
        released.set()
        await cluster.placed("p")
        before = cluster.metric(comparisons)
        await cluster.until(lambda: cluster.metric(comparisons) > before + 1, "comparisons")
        cluster.term.state.quotas.use(NAMESPACE).memory_mib += 12_345
        await cluster.until(lambda: cluster.is_over, "end of the term")
        assert (cluster.term.is_wrong, cluster.term.is_deciding) == (True, False)
        assert cluster.metric("tranche_scheduler_ledger_differences_total", kind="quota") == 1


async def test_term_ends_when_cards_are_reserved_for_nobody(cluster: Cluster) -> None:
    """An internal error leaves a reservation behind, which nothing else returns."""

    def fail(_method: str, path: str) -> None:
        if path.endswith("/binding"):
            raise RuntimeError("a defect")

    cluster.api.on_write = fail
    async with leading(cluster, recount_seconds=0.02):
        cluster.pod("p")
        await cluster.until(lambda: cluster.is_over, "end of the term")
        assert cluster.metric("tranche_scheduler_ledger_differences_total", kind="pod") == 1


async def test_uncounted_pod_is_reported(cluster: Cluster) -> None:
    """It runs with a card that no allocation names, so its node takes no pod, and an event says so."""
    async with leading(cluster):
        cluster.pod("foreign", nodeName="n0", schedulerName="other")
        await cluster.event("UncountedPod")


@pytest.mark.parametrize(("weights", "node"), [(ScoreWeights(), "n1"), (NO_PREFERENCES, "n0")])
async def test_preferences_count_as_the_settings_weigh_them(cluster: Cluster, weights: ScoreWeights, node: str) -> None:
    """Without weight the pod's preference for a node is ignored."""
    cluster.node("n1")
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    async with leading(cluster, weights=weights):
        cluster.pod("p", affinity=affinity)
        assert (await cluster.placed("p"))["spec"]["nodeName"] == node


async def test_free_cpu_counts_if_it_is_weighed(cluster: Cluster) -> None:
    """The node with the pod that uses much of it is not preferred."""
    cluster.node("n1")
    async with leading(cluster, weights=ScoreWeights(cards=0, node_resources=100)):
        limits = {"cpu": "60"}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        cluster.pod("busy", gpu=0, nodeName="n0", containers=containers)
        cluster.pod("p")
        assert (await cluster.placed("p"))["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(("stranded", "node"), [(300, "n1"), (0, "n0")])
async def test_stranded_cards_count_as_they_are_weighed(cluster: Cluster, stranded: int, node: str) -> None:
    """A pod that leaves the cards of the first node without CPU goes to a node without cards."""
    cluster.node("n1", count=0)
    async with leading(cluster, weights=ScoreWeights(stranded=stranded)):
        limits = {"cpu": "60"}
        containers = [{"name": "main", "resources": {"limits": limits, "requests": limits}}]
        cluster.pod("busy", gpu=0, containers=containers)
        assert (await cluster.placed("busy"))["spec"]["nodeName"] == node


async def test_node_of_hamis_plugin_is_locked_when_its_lock_is_free(cluster: Cluster) -> None:
    """Another pod's lock is waited for; its end is seen by the watch of nodes."""
    cluster.pod("other", gpu=0, schedulerName="hami-scheduler")
    cluster.served_by_hami("h0", lock=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ},default,other")
    async with leading(cluster):
        cluster.pod("p", nodeSelector={"kubernetes.io/hostname": "h0"})
        cluster.pod("elsewhere", nodeSelector={"kubernetes.io/hostname": "n0"})
        await cluster.placed("elsewhere")
        assert not cluster.shown("p")["spec"].get("nodeName")
        cluster.served_by_hami("h0")
        await cluster.placed("p")
        assert cluster.api.get_object("nodes", "h0")["metadata"]["annotations"][HAMI_LOCK].endswith(",default,p")


async def test_claim_is_reserved_while_its_pod_is_bound(cluster: Cluster) -> None:
    """The status says it before the Binding is done."""
    claim = {"metadata": {"name": "one", "namespace": NAMESPACE}, "spec": {"devices": {"count": 1}}}
    cluster.api.put("gpuclaims", claim)
    released = cluster.api.held["/binding"] = asyncio.Event()
    async with leading(cluster):
        cluster.pod("p", memory=None, annotations={CLAIM: "one"})
        await cluster.until(
            lambda: cluster.api.get_object("gpuclaims", "one", NAMESPACE).get("status", {}).get("phase") == "Reserved",
            "reserved claim",
        )
        released.set()
        await cluster.placed("p")


async def test_volume_is_reserved_before_its_pod_is_bound(cluster: Cluster) -> None:
    """The pod waits until its claim has it."""
    cluster.api.put(
        "storageclasses",
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    for made in (storage.claim("data"), storage.volume("pv", node="n0")):
        plural = "persistentvolumes" if made.metadata.name == "pv" else "persistentvolumeclaims"
        cluster.api.put(plural, msgspec.to_builtins(made))
    async with leading(cluster):
        cluster.pod("p", volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
        await cluster.wrote("PATCH", "/persistentvolumes/pv")
        assert not cluster.shown("p")["spec"].get("nodeName")
        cluster.api.put("persistentvolumes", msgspec.to_builtins(storage.volume("pv", node="n0", claim="data")))
        cluster.api.put("persistentvolumeclaims", msgspec.to_builtins(storage.claim("data", volume="pv")))
        await cluster.placed("p")


async def test_instance_that_no_agent_creates_is_requested_no_more(cluster: Cluster) -> None:
    """After the time of the settings the request is taken back."""
    cluster.node("n0", mig_card(0, by="agent"))
    async with leading(cluster, mig_request_timeout_seconds=0.1):
        cluster.pod("p", memory=4000, annotations={"nvidia.com/vgpu-mode": "mig"})

        def requests() -> list[Any]:
            return list(cluster.api.get_object("gpunodestatuses", "n0")["spec"].get("migInstances", []))

        await cluster.until(lambda: bool(requests()), "request")
        await cluster.until(lambda: not requests(), "withdrawn request")
