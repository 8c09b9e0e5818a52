"""Each section shows what the scheduler knows, follows it, and says where something is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from allocation.allocation import Charge
from allocation.fairness.queue_spec import QueueKey
from allocation.inventory import Card
from allocation.names import CORDON
from allocation.steps import finish
from scheduler.holds import Hold
from tests.scheduler.support.claims import manifest as gpu_claim
from tests.scheduler.support.terms import Cluster
from tests.scheduler.ui.pages import Reader, Site, serving

if TYPE_CHECKING:
    from collections.abc import Callable


def cluster(*, cards: int = 2) -> Cluster:
    """Return a cluster with one node."""
    made = Cluster()
    made.node("n1", count=cards)
    return made


async def row(reader: Reader, section: str, key: str, condition: Callable[[Any], bool] = bool) -> Any:
    """Wait until a row fulfils a condition, and return it."""

    def found() -> Any:
        return reader.rows.get(section, {}).get(key)

    await reader.until(lambda: found() is not None and condition(found()), f"{section} {key}")
    return found()


async def test_the_fleet_shows_capacity_use_and_state_of_each_card() -> None:
    """Cards that are unhealthy or cordoned, and nodes that are cordoned, are marked; a change of them arrives."""
    made = Cluster()
    made.node("n1", Card("GPU-0", 0, 1000, slots=4, model="T4"), Card("GPU-1", 1, 2000, model="T4", healthy=False))
    async with serving(made) as site, site.reading("capacities", "use") as reader:
        capacity = await row(reader, "capacities", "n1")
        assert (capacity["kinds"], capacity["cards"][0][2:5]) == ([["T4", "hami-core"]], [1000, 1000, 4])
        assert (await row(reader, "use", "n1"))["cards"] == [[0, 0, 0, 1], [0, 0, 0, 0]]
        node = made.api.get_object("nodes", "n1")
        node["metadata"].setdefault("annotations", {})[CORDON] = "GPU-0"
        made.api.put("nodes", {**node, "spec": {"unschedulable": True}})
        use = await row(reader, "use", "n1", lambda each: each["cordoned"])
        assert use["cards"] == [[0, 0, 0, 3], [0, 0, 0, 0]]


async def test_a_node_without_a_report_is_not_known() -> None:
    """It has the label of agents and no cards: the page shows that, not zeros; when it goes, so does its row."""
    made = cluster()
    made.api.put("nodes", {"metadata": {"name": "dark", "labels": {"gpu": "on"}}, "spec": {}, "status": {}})
    async with serving(made) as site, site.reading("use", "capacities") as reader:
        assert (await row(reader, "use", "dark"))["cards"] is None
        assert (await row(reader, "capacities", "dark"))["isolation"] is None
        made.api.remove("nodes", "dark")
        await reader.until(lambda: "dark" not in reader.rows["use"], "removal")


async def test_a_removed_node_leaves_the_fleet(site: Site) -> None:
    """Its row is removed from the pages that have it."""
    async with site.reading("use") as reader:
        await row(reader, "use", "n2")
        site.cluster.api.remove("gpunodestatuses", "n2")
        site.cluster.api.remove("nodes", "n2")
        await reader.until(lambda: "n2" not in reader.rows["use"], "removal")


async def test_waiting_pods_have_reasons_and_what_would_help(site: Site) -> None:
    """Codes and words as in the pod's event, the kinds of events that may help, and the place in the queue."""
    site.cluster.pod("large", memory=5000)
    async with site.reading("waiting", "ranks") as reader:
        pod = await row(reader, "waiting", "default/large", lambda each: each["place"] == "unschedulable")
        assert pod["reasons"] == ["CardInsufficientMemory"]
        assert "CardInsufficientMemory" in pod["note"]
        assert "cards_changed" in pod["events"]
        assert (pod["requested"][0]["cards"], pod["requested"][0]["memoryMiB"]) == (1, 5000)
        assert await row(reader, "ranks", "default/large") == {"rank": 1}
        site.cluster.end("large")
        await reader.until(lambda: not reader.rows["waiting"] and not reader.rows["ranks"], "removal")


async def test_a_pod_that_waits_for_another_object_shows_what_it_requests(site: Site) -> None:
    """Whatever keeps it from being decided about; only what cannot be read is not shown."""
    queue = {"metadata": {"name": "other"}, "spec": {"namespaceSelector": {"matchLabels": {"team": "other"}}}}
    site.cluster.api.put("gpuqueues", queue)
    site.cluster.pod("forbidden", memory=300, labels={"gpu.scheduling/queue": "other"})
    site.cluster.pod("odd", memory=-1)
    async with site.reading("waiting") as reader:
        forbidden = await row(reader, "waiting", "default/forbidden", lambda each: each["reasons"])
        assert (forbidden["reasons"], forbidden["requested"][0]["memoryMiB"]) == (["QueueForbidden"], 300)
        odd = await row(reader, "waiting", "default/odd", lambda each: each["reasons"])
        assert (odd["place"], odd["requested"]) == ("held", None)


async def test_a_hold_is_shown_with_the_pod_that_waits_for_it() -> None:
    """The pod has node, cause and the number of pods that have to end; the card has the name of the pod."""
    made = cluster(cards=1)
    made.pod("first", memory=1000)
    async with serving(made) as site, site.reading("waiting", "node:n1") as reader:
        await made.placed("first")
        made.pod("second", memory=800)
        await row(reader, "waiting", "default/second", lambda each: each["place"] == "unschedulable")
        state, uid = made.term.state, "uid-second"
        pod = state.queue.pod(uid)
        assert pod is not None
        charges, key = (Charge("GPU-n1-0", 800, 0, 1),), QueueKey("default")
        state.holds.add(Hold(uid, key, (0, 0), "n1", charges, frozenset({"uid-first"})), pod)
        hold = (await row(reader, "waiting", "default/second", lambda each: each["hold"]))["hold"]
        assert (hold["node"], hold["cause"], hold["awaited"]) == ("n1", "patience", 1)
        reserved = await row(reader, "node:n1", f"reserved/hold:{uid}/GPU-n1-0")
        assert (reserved["by"], reserved["pod"], reserved["memoryMiB"]) == ("hold", "default/second", 800)


async def test_pods_of_kube_scheduler_are_listed_without_reasons() -> None:
    """In extender mode kube-scheduler has the queue; what is not known is not made up."""
    made = cluster()
    made.pod("outside")
    async with serving(made, extender=True) as site, site.reading("waiting") as reader:
        pod = await row(reader, "waiting", "default/outside")
        assert (pod["place"], pod["reasons"]) == ("external", [])


async def test_pods_that_are_handed_over_are_listed_with_those_of_the_loop() -> None:
    """They leave the table like the others."""
    made = cluster()
    made.pod("outside", schedulerName="tranche-claims")
    made.pod("inside", memory=9999)
    async with serving(made, resource_claims="hand-over") as site, site.reading("waiting") as reader:
        assert (await row(reader, "waiting", "default/outside"))["place"] == "external"
        assert (await row(reader, "waiting", "default/inside"))["place"] == "unschedulable"
        made.end("outside")
        await reader.until(lambda: "default/outside" not in reader.rows["waiting"], "its end")


async def test_a_node_shows_which_pod_has_which_slice(site: Site) -> None:
    """By container, with its amounts; the slice goes with the pod."""
    site.cluster.pod("a", memory=300)
    node = (await site.cluster.placed("a"))["spec"]["nodeName"]
    section = f"node:{node}"
    async with site.reading(section) as reader:
        key = f"share/default/a/main/GPU-{node}-0"
        share = await row(reader, section, key)
        assert (share["pod"], share["container"], share["memoryMiB"]) == ("default/a", "main", 300)
        card = await row(reader, section, f"card/GPU-{node}-0", lambda each: each["used"][0] == 300)
        assert card["total"] == [1000, 1000, 4]
        assert (await row(reader, section, "node"))["links"][0] == [0, 1]
        site.cluster.end("a")
        await reader.until(lambda: key not in reader.rows[section], "removal")


async def test_a_node_shows_the_last_hour_of_each_card(site: Site) -> None:
    """What is used minute by minute; a minute in which nothing was sampled is not known, and not zero."""
    site.cluster.pod("a", memory=300)
    node = (await site.cluster.placed("a"))["spec"]["nodeName"]
    section, key = f"node:{node}", f"history/GPU-{node}-0"
    async with site.reading(section) as reader:
        finish(site.history.sample())
        past = await row(reader, section, key)
        assert (past["memoryMiB"], past["minute"]) == ([-1] * 59 + [300], site.minute)
        site.cluster.end("a")
        await row(reader, section, f"card/GPU-{node}-0", lambda each: each["used"][0] == 0)
        site.minute += 3
        finish(site.history.sample())
        past = await row(reader, section, key, lambda each: each["minute"] == site.minute)
        assert past["memoryMiB"] == [-1] * 56 + [300, -1, -1, 0]
        site.minute += 500
        finish(site.history.sample())
        past = await row(reader, section, key, lambda each: each["minute"] == site.minute)
        assert past["memoryMiB"] == [-1] * 59 + [0]


async def test_a_node_that_does_not_exist_is_said_not_to(site: Site) -> None:
    """It has no cards, and what enforces limits there is not known."""
    async with site.reading("node:nowhere") as reader:
        node = await row(reader, "node:nowhere", "node")
        assert (node["exists"], node["isolation"], node["links"]) == (False, None, None)


async def test_a_pod_shows_its_way_and_its_environment(site: Site) -> None:
    """Waiting with the decision, then placed with the time of the decision, its shares and its variables."""
    site.cluster.pod("a", memory=5000)
    section, key = "pod:default/a", "default/a"
    async with site.reading(section) as reader:
        waits = await row(reader, section, key, lambda each: each["decisions"])
        assert (waits["state"], waits["decided"], waits["node"]) == ("waiting", None, "")
        assert waits["decisions"][-1]["reason"] == "FilteringFailed"
        site.cluster.node("n3", Card("GPU-big", 0, 8000))
        placed = await row(reader, section, key, lambda each: each["state"] == "placed" and each["decided"])
        assert (placed["node"], placed["decisions"][-1]["reason"]) == ("n3", "FilteringSucceed")
        (container,) = placed["containers"]
        assert container["shares"][0]["uuid"] == "GPU-big"
        annotations = site.cluster.shown("a")["metadata"]["annotations"]
        for name, value in container["environment"].items():
            variable = name.lower().replace("_", "-")
            assert annotations[f"{variable}.gpu.scheduling/main"] == value


async def test_decisions_are_live_and_bounded(site: Site) -> None:
    """Each decision arrives with object, reason and text; the oldest go."""
    async with site.reading("decisions") as reader:
        site.cluster.pod("a")
        await reader.until(lambda: any(each["name"] == "default/a" for each in reader.rows["decisions"].values()), "it")
        reference = site.cluster.term.informers.pods.get("a", "default").reference  # type: ignore[union-attr]
        for number in range(1200):
            site.cluster.recorder.record(reference, type="Normal", reason="Test", action="Test", note=str(number))
        await reader.until(
            lambda: any(each["note"] == "1199" for each in reader.rows["decisions"].values()), "the last"
        )
        await reader.until(lambda: len(reader.rows["decisions"]) == 500, "bound")
        assert len(site.cluster.recorder.recent) <= 2000


async def test_shares_and_quotas_are_those_of_the_api(site: Site) -> None:
    """What a namespace holds, and what is used of its quota; names of pods are left to other sections."""
    quota = {"limits": {"nvidia.com/gpumem": 2000}}
    site.cluster.api.put("gpuquotas", {"metadata": {"name": "q", "namespace": "default"}, "spec": {"total": quota}})
    site.cluster.pod("a", memory=300)
    async with site.reading("queues", "quotas") as reader:
        queue = (await row(reader, "queues", "namespace/default", lambda each: each["queue"]["running"]))["queue"]
        assert (queue["allocated"]["nvidia.com/gpumem"], queue["next"]) == (300, [])
        limits = (await row(reader, "quotas", "default/GpuQuota/q", lambda each: each["limits"][0]["used"]))["limits"]
        assert (limits[0]["used"], limits[0]["limit"]) == (300, 2000)


async def test_shares_have_the_hours_and_the_use_of_namespaces(site: Site) -> None:
    """As far as the term knows them; of what is not measured yet nothing is said."""
    site.cluster.pod("a")
    await site.cluster.placed("a")
    async with site.reading("hours", "usage") as reader:
        assert (await row(reader, "hours", "default/"))["cards"] == 0.1
        use = await row(reader, "usage", "default")
        assert (use["shares"], use["unknown"], use["usedMiB"]) == (1, 1, 0)


async def test_gangs_and_claims_show_how_far_their_pods_are(site: Site) -> None:
    """A gang with too few pods says so; a claim has the pod that names it, with node and cards once it is bound."""
    site.cluster.api.put("gpuclaims", gpu_claim("c", namespace="default", count=1))
    site.cluster.pod("a", memory=None, annotations={"gpu.scheduling/claim": "c"})
    gang = {"gpu.scheduling/gang": "g", "gpu.scheduling/gang-min-members": "2"}
    site.cluster.pod("member", annotations=gang)
    async with site.reading("gangs", "claims") as reader:
        shown = await row(reader, "gangs", "default/g")
        assert (shown["state"], shown["size"], shown["waiting"]) == ("Incomplete", 2, 1)
        claim = await row(reader, "claims", "default/c", lambda each: each["phase"] == "Bound")
        assert (claim["count"], claim["users"][0]["pod"], claim["users"][0]["cards"]) == (1, "a", [0])


async def test_texts_of_tenants_are_bounded(site: Site) -> None:
    """Whatever a pod's reasons say, a row has at most as much of it as an event."""
    site.cluster.pod("a", memory=5000, nodeSelector={f"key-{number}": "x" * 60 for number in range(60)})
    async with site.reading("waiting", "pod:default/a") as reader:
        pod = await row(reader, "waiting", "default/a", lambda each: each["note"])
        assert len(pod["note"]) <= 1024
        detail = await row(reader, "pod:default/a", "default/a", lambda each: each["decisions"])
        assert all(len(each["note"]) <= 1024 for each in detail["decisions"])
