"""GpuQueues on a real API server: who is served next, who pays, and what queues allow."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from allocation.names import ALLOCATION, CHARGED_TO, INJECTION_LABEL, QUEUE
from allocation.wire import record
from lab import kubectl, manifests, wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod
from tests.system.support import gpubindings, gpuqueues
from tests.system.support.gpuqueues import set_queue, status
from tests.system.support.restarts import restart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver

NODE = gpubindings.NODE_A
CARDS = 8


@pytest.fixture(scope="module")
def node(tranche: Layout) -> Iterator[str]:
    """A node of eight cards for these tests alone."""
    with gpubindings.nodes(tranche):
        yield NODE


@pytest.fixture
def others(make_namespace: Callable[..., Namespace]) -> Iterator[Namespace]:
    """A second namespace, whose pods are deleted as well before the next test begins."""
    made = make_namespace()
    yield made
    made.empty()


@pytest.fixture
def make_queue(tranche: Layout) -> Iterator[Callable[..., None]]:
    """Create or change a queue, for all namespaces unless it says otherwise; all are deleted after the test."""
    with gpuqueues.deleted(tranche):
        yield functools.partial(set_queue, tranche)


def whole(name: str, queue_name: str = "", *, priority: str = "") -> dict[str, Any]:
    """Return a pod that needs a whole card of the node."""
    made = pod(name, node=NODE, labels={QUEUE: queue_name} if queue_name else {}, gpu=1)
    if priority:
        made["spec"]["priorityClassName"] = priority
    return made


def fill(namespace: Namespace, count: int = CARDS) -> list[str]:
    """Fill cards of the node, and return the names of the pods that do."""
    names = [f"filler-{number}" for number in range(count)]
    namespace.create(*(whole(name) for name in names))
    namespace.placed(count)
    return names


def placed_queues(namespace: Namespace) -> Counter[str]:
    """Return how many pods of each queue have a node."""
    return Counter(each["metadata"]["labels"][QUEUE] for each in namespace.pods(QUEUE) if each["spec"].get("nodeName"))


# ---- who is served next ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("node")
def test_freed_cards_go_to_the_smallest_weighted_share(
    make_queue: Callable[..., None], others: Namespace, namespace: Namespace
) -> None:
    """One after the other; and each pod carries the queue that pays, of which a restart reads the same shares."""
    weights = {"small": 1, "middle": 2, "large": 4}
    for name, weight in weights.items():
        make_queue(name, weight=weight)
    fillers = fill(others)
    namespace.create(*(whole(f"{name}-{number}", name) for number in range(6) for name in weights))
    for number in range(6):
        for name in weights:
            namespace.unplaced(f"{name}-{number}")
    before: Counter[str] = Counter()
    for count, filler in enumerate(fillers, 1):
        least = min(before[name] / weight for name, weight in weights.items())
        others.delete("pod", filler)
        namespace.placed(count, QUEUE)
        after = placed_queues(namespace)
        (taker,) = (after - before).elements()
        assert before[taker] / weights[taker] == least, (before, taker)
        before = after
    for each in namespace.pods(QUEUE):
        charged = each["metadata"].get("annotations", {}).get(CHARGED_TO)
        assert charged == (each["metadata"]["labels"][QUEUE] if each["spec"].get("nodeName") else None)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("crash", [True, False])
def test_shares_survive_a_restart_and_labels_that_change(
    make_queue: Callable[..., None], namespace: Namespace, *, crash: bool
) -> None:
    """The status says the same before and after, although the pods name another queue by then."""
    layout = namespace.layout
    make_queue("payer", weight=3)
    make_queue("other")
    namespace.create(whole("one", "payer"), whole("two", "payer"))
    namespace.placed(2)
    shown = functools.partial(status, layout, "payer")
    wait.until(lambda: shown().get("running") == 2, what="the status of the queue", timeout_s=PATIENCE_S)
    before = shown()
    assert before["dominantResource"]
    namespace.kubectl("label", "pods", "one", "two", f"{QUEUE}=other", "--overwrite")
    restart(layout, "scheduler", crash=crash)
    namespace.create(whole("three", "other"))
    wait.until(
        lambda: status(layout, "other").get("running") == 1, what="the status of the other", timeout_s=PATIENCE_S
    )
    after = shown()
    assert {key: after[key] for key in ("running", "allocated", "share", "weightedShare")} == {
        key: before[key] for key in ("running", "allocated", "share", "weightedShare")
    }


@pytest.mark.usefixtures("node")
def test_without_queues_order_is_priority_then_age(others: Namespace, namespace: Namespace, tranche: Layout) -> None:
    """A freed card goes to the important pod that failed before, not to the one that was created at that moment."""
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
        "preemptionPolicy": "Never",
    }
    client(tranche).apply(important)
    fillers = fill(others)
    namespace.create(whole("high", priority="important"))
    namespace.unplaced("high")
    for round_ in range(3):  # each attempt fails: something is freed that does not help
        others.create(pod(f"slice-{round_}", gpu=1, gpumem=1000))
        others.placed(CARDS + 1)
        others.delete("pod", f"slice-{round_}")
    namespace.create(whole("low"))
    others.delete("pod", fillers[0])
    (first,) = namespace.placed(1)
    assert first["metadata"]["name"] == "high"
    assert CHARGED_TO not in first["metadata"]["annotations"]
    namespace.delete("pod", "low")
    client(tranche).delete("priorityclass", "important")


# ---- tiers -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("node")
def test_a_lower_tier_waits_while_a_higher_one_is_short(
    make_queue: Callable[..., None], others: Namespace, namespace: Namespace
) -> None:
    """Its slice would fit beside the cards that are taken, but the higher tier waits for two whole ones."""
    make_queue("first", priority=10)
    make_queue("second")
    fillers = fill(others, CARDS - 1)
    pair = whole("pair", "first")
    pair["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": 2}
    namespace.create(pair)
    namespace.unplaced("pair")
    namespace.create(pod("slice", node=NODE, labels={QUEUE: "second"}, gpu=1, gpumem=1000))
    namespace.create(
        pod("elsewhere", node=gpubindings.NODE_B, labels={QUEUE: "first"}, gpu=1, gpumem=1000)
    )  # the tier itself goes on
    assert namespace.placed(1)[0]["metadata"]["name"] == "elsewhere"
    assert not namespace.pod("slice")["spec"].get("nodeName")
    others.delete("pod", fillers[0])
    names = {each["metadata"]["name"] for each in namespace.placed(2)}
    assert names == {"pair", "elsewhere"}
    others.delete("pod", fillers[1])
    namespace.placed(3)


@pytest.mark.usefixtures("node")
def test_a_hopeless_pod_keeps_no_tier_waiting(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """No card has as much memory as it asks for."""
    make_queue("first", priority=10)
    make_queue("second")
    namespace.create(pod("hopeless", node=NODE, labels={QUEUE: "first"}, gpu=1, gpumem=900_000))
    namespace.unplaced("hopeless")
    namespace.create(whole("modest", "second"))
    assert namespace.placed(1)[0]["metadata"]["name"] == "modest"


# ---- what queues allow -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("node")
def test_a_pod_waits_for_its_queue(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """It can be created before the queue."""
    namespace.create(whole("early", "later"))
    assert "GpuQueue later does not exist" in namespace.unplaced("early")
    make_queue("later")
    namespace.placed(1)


@pytest.mark.usefixtures("node")
def test_a_queue_for_others_is_refused_and_held(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """Admission refuses a pod that names it; one that was created before is held, until the selector matches."""
    make_queue("theirs", suspended=True)
    namespace.create(whole("early", "theirs"))
    namespace.unplaced("early")
    make_queue("theirs", namespaceSelector={"matchLabels": {"team": "theirs"}})

    def held() -> bool:
        return "is not for namespace" in namespace.unplaced("early")

    wait.until(held, what="the pod to be held", timeout_s=PATIENCE_S)

    def refused() -> bool:
        try:
            namespace.create(whole("late", "theirs"))
        except Exception as error:  # noqa: BLE001 -- the message is what counts
            return "whose spec.namespaceSelector does not match namespace" in str(error)
        namespace.delete("pod", "late")
        return False

    wait.until(refused, what="admission to have heard of the queue", timeout_s=PATIENCE_S)
    client(namespace.layout).patch("namespace", namespace.name, {"metadata": {"labels": {"team": "theirs"}}})
    namespace.placed(1)


@pytest.mark.usefixtures("node")
def test_new_pods_of_a_suspended_queue_wait(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """Those that run stay."""
    make_queue("paused")
    namespace.create(whole("runs", "paused"))
    namespace.placed(1)
    make_queue("paused", suspended=True)
    wait.until(
        lambda: status(namespace.layout, "paused").get("observedGeneration") == 2,
        what="the scheduler to hear of it",
        timeout_s=PATIENCE_S,
    )
    namespace.create(whole("waits", "paused"))
    assert "GpuQueue paused is suspended" in namespace.unplaced("waits")
    (active,) = (each for each in status(namespace.layout, "paused")["conditions"] if each["type"] == "Active")
    assert (active["status"], active["reason"]) == ("False", "Suspended")
    make_queue("paused", suspended=False)
    namespace.placed(2)


@pytest.mark.usefixtures("node")
def test_limits_count_with_quotas(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """The object that binds is named; a pod that ends makes room for the next."""
    make_queue("limited", limits={"nvidia.com/gpu": 1})
    namespace.create(whole("one", "limited"))
    namespace.placed(1)
    namespace.create(whole("two", "limited"))
    assert "GpuQueue limited limits nvidia.com/gpu to 1: 1 used, 1 requested" in namespace.unplaced("two")
    namespace.delete("pod", "one")
    assert namespace.placed(1)[0]["metadata"]["name"] == "two"


@pytest.mark.usefixtures("node")
def test_most_instances(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """As many pods as that have a node, and no more."""
    make_queue("few", maxInstances=2)
    namespace.create(*(whole(f"pod-{number}", "few") for number in range(3)))
    namespace.placed(2)
    (waiting,) = (each["metadata"]["name"] for each in namespace.pods() if not each["spec"].get("nodeName"))
    assert "as many as its spec.maxInstances allows" in namespace.unplaced(waiting)
    make_queue("few", maxInstances=3)
    namespace.placed(3)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("strategy", ["StrictFIFO", "BestEffortFIFO"])
def test_strict_order_keeps_the_younger_waiting(
    make_queue: Callable[..., None], namespace: Namespace, strategy: str
) -> None:
    """Behind a pod that fits nowhere; in the other strategy those go ahead that fit."""
    make_queue("ordered", queueingStrategy=strategy)
    namespace.create(pod("oldest", node=NODE, labels={QUEUE: "ordered"}, gpu=1, gpumem=900_000))
    namespace.unplaced("oldest")
    namespace.create(whole("younger", "ordered"))
    if strategy == "BestEffortFIFO":
        namespace.placed(1)
        return
    namespace.create(whole("witness"))  # of another queue, and younger still
    assert namespace.placed(1)[0]["metadata"]["name"] == "witness"
    namespace.delete("pod", "oldest")
    namespace.placed(2)


def test_events_and_status_show_an_overused_queue(make_queue: Callable[..., None], namespace: Namespace) -> None:
    """It has two nodes of cards, and a queue of a hundred times its weight has a pod that waits."""
    make_queue("greedy", limits={"nvidia.com/gpu": 64})
    make_queue("modest", weight=100, suspended=True)
    namespace.create(*(pod(f"pod-{number}", labels={QUEUE: "greedy"}, gpu=8) for number in range(2)))
    namespace.create(pod("later", labels={QUEUE: "modest"}, gpu=1))

    def overused() -> bool:
        conditions = status(namespace.layout, "greedy").get("conditions", [])
        return any((each["type"], each["status"]) == ("Overused", "True") for each in conditions)

    wait.until(overused, what="the queue to be overused", timeout_s=PATIENCE_S)
    shown = status(namespace.layout, "greedy")
    assert float(shown["share"]) > 0.1 > float(shown["entitlement"])

    def reasons() -> set[str]:
        text = kubectl.run(namespace.layout, "get", "events.events.k8s.io", "-n", "default", "-o", "json")
        return {
            each["reason"]
            for each in json.loads(text)["items"]
            if each["regarding"].get("kind") == "GpuQueue" and each["regarding"]["name"] in ("greedy", "modest")
        }

    wait.until(lambda: "Overused" in reasons(), what="the event", timeout_s=PATIENCE_S)


# ---- the page for beginners ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("make_queue", "node")
def test_what_the_start_page_shows_leads_to_a_pod_with_a_slice(tranche: Layout, namespace: Namespace) -> None:
    """Queue, quota and pod of docs/start.md are accepted; the own queue of the namespace pays, and the quota counts."""
    page = (manifests.ROOT.parent / "docs" / "start.md").read_text(encoding="utf-8").replace("team-a", namespace.name)
    queue, team, quota, first = (
        each for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) for each in yaml.safe_load_all(block)
    )
    assert team["metadata"]["labels"][INJECTION_LABEL] == "enabled"
    client(tranche).apply(queue, quota)
    first["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    namespace.create(first)
    (placed,) = namespace.placed(1)
    assert placed["metadata"]["annotations"][CHARGED_TO] == f"namespace/{namespace.name}"
    (share,) = record.decode(placed["metadata"]["annotations"][ALLOCATION]).containers["main"]
    assert (share.memory_mib, share.cores) == (4096, 200)

    def used(quotas: Mapping[str, Any]) -> bool:
        return quotas["team"].get("status", {}).get("used") == {"nvidia.com/gpumem": 4096}

    client(tranche).until(used, "gpuquotas", namespace=namespace.name, what="the use", timeout_s=PATIENCE_S)
