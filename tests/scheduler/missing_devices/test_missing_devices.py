"""Pods whose cards their nodes do not have any more: what is concluded, and what becomes of the pods."""

import asyncio
from typing import Any

import msgspec
import pytest

from allocation.allocation import Allocation, CardShare
from allocation.inventory import Card, NodeInventory
from allocation.names import ALLOCATION
from allocation.wire.record import encode
from cluster.api import Api
from cluster.errors import ApiError, NotFoundError, UnreachableError
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus, Spec, status_of
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import GPU_NODE_STATUSES, PODS
from scheduler.missing_devices.reconciler import MissingDeviceReconciler
from scheduler.objects import Pod
from scheduler.settings import MissingDevicesPolicy, SchedulerSettings
from tests.scheduler.support.builders import Clock, allocated, node, pod, state
from tests.scheduler.support.claims import claim
from tests.scheduler.support.fencing import fenced

NODE = "n1"


def report(*present: int, missing: tuple[int, ...] = (), version: str = "1") -> GpuNodeStatus:
    """Return what the agent reports: the indexes of its cards, and of those that the node had."""
    cards = tuple(Card(f"GPU-{NODE}-{index}", index, 1000, slots=4) for index in (*present, *missing))
    status = status_of(NodeInventory(NODE, cards))
    for device in status.devices:
        if device.id in missing:
            device.missing = True
    return GpuNodeStatus(ObjectMeta(name=NODE, resource_version=version), status, Spec(NODE))


class Server(Api):
    """An API server with reports; it deletes pods, or answers with the error that a test has set for one."""

    def __init__(self) -> None:
        self.statuses: list[GpuNodeStatus] = []
        self.deleted: list[tuple[str, str]] = []
        self.errors: dict[str, Exception] = {}
        self.read_error: Exception | None = None
        self.reads = 0

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Serve the list of reports, and deletions of pods."""
        if method == "DELETE":
            name = path.rpartition("/")[2]
            if name in self.errors:
                raise self.errors[name]
            self.deleted.append((name, how["body"]["preconditions"]["uid"]))
            return b"{}"
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        return msgspec.json.encode({"items": self.statuses})


class Term:
    """What a term has for missing devices."""

    def __init__(self, policy: MissingDevicesPolicy = "delete") -> None:
        self.clock, self.server = Clock(), Server()
        self.state = state(clock=self.clock)
        self.state.set_node(node(NODE))
        self.recorder = Recorder(self.server, component="test", instance="test")
        self.pods = Informer(self.server, PODS, Pod, on_upsert=self.state.set_pod, on_delete=self.state.drop_pod)
        self.statuses = Informer(self.server, GPU_NODE_STATUSES, GpuNodeStatus, on_upsert=self.state.agent_reports.set)
        self.reconciler = MissingDeviceReconciler(
            fenced(self.server),
            state=self.state,
            statuses=self.statuses,
            pods=self.pods,
            recorder=self.recorder,
            settings=SchedulerSettings(missing_devices=policy),
        )

    def reports(self, status: GpuNodeStatus, *, live: GpuNodeStatus | None = None) -> None:
        """Give a report to the informer and to the API server, perhaps a newer one to the latter."""
        self.statuses._set(status)
        self.server.statuses = [live or status]

    def runs(self, *pods: Pod) -> None:
        """Add running pods to the informer."""
        for each in pods:
            self.pods._set(each)

    def events(self) -> list[tuple[str, str]]:
        """Return reason and pod of each event so far, and forget them."""
        found = []
        while not self.recorder._queue.empty():
            event, _ = self.recorder._queue.get_nowait()
            found.append((event.reason, event.regarding.name))
        return found


def on_card(name: str, index: int, **more: Any) -> Pod:
    """Return a pod that runs on a card of the node."""
    return allocated(name, node=NODE, memory=100, card=index, **more)


async def test_a_pod_whose_card_is_absent_is_deleted_and_others_stay() -> None:
    """Whether the card is absent from the report, or marked as missing; by UID, with an event."""
    for after in (report(0, version="2"), report(0, missing=(1,), version="2")):
        term = Term()
        term.reports(report(0, 1))
        term.runs(on_card("stays", 0), on_card("goes", 1))
        await term.reconciler.reconcile()
        assert (term.server.deleted, term.server.reads) == ([], 0)  # nothing is suspected, so nothing is read
        term.reports(after)
        await term.reconciler.reconcile()
        assert term.server.deleted == [("goes", "uid-goes")]
        assert term.events() == [("DeviceMissing", "goes")]


async def test_pods_are_kept_by_default_and_the_event_is_recorded_once() -> None:
    """Once per pod and cards, not at each look."""
    term = Term("keep")
    term.reports(report(0, 1))
    term.runs(on_card("goes", 1))
    term.reports(report(0, version="2"))
    for _ in range(3):
        await term.reconciler.reconcile()
    assert term.events() == [("DeviceMissing", "goes")]
    assert term.server.deleted == []


async def test_a_report_without_cards_and_no_report_say_nothing() -> None:
    """At the start of a driver, or after the agent's object was deleted."""
    term = Term()
    term.reports(report(0))
    term.runs(on_card("a", 0))
    term.reports(report(version="2"))
    await term.reconciler.reconcile()
    assert (term.server.deleted, term.server.reads) == ([], 0)
    elsewhere = Term()
    elsewhere.runs(on_card("a", 0))
    await elsewhere.reconciler.reconcile()
    assert (elsewhere.server.deleted, elsewhere.server.reads) == ([], 0)


async def test_an_incomplete_report_says_nothing() -> None:
    """The card may be there, and the agent could not read it."""
    term = Term()
    term.reports(report(0, 1))
    term.runs(on_card("a", 1))
    incomplete = report(0, version="2")
    assert incomplete.status is not None
    incomplete.status.incomplete = True
    term.reports(incomplete)
    await term.reconciler.reconcile()
    assert (term.server.deleted, term.server.reads) == ([], 0)


async def test_a_report_without_a_driver_says_nothing() -> None:
    """What it lists are the cards that the node had last, whatever the node has now."""
    term = Term()
    term.reports(report(0, 1))
    term.runs(on_card("a", 1))
    without = report(0, version="2")
    assert without.status is not None
    without.status.state = "DriverMissing"
    term.reports(without)
    await term.reconciler.reconcile()
    assert (term.server.deleted, term.server.reads) == ([], 0)


async def test_a_silent_node_says_nothing() -> None:
    """Its last report may be old; the node takes no pods meanwhile."""
    term = Term()
    term.reports(report(0, 1))
    term.runs(on_card("a", 1))
    term.reports(report(0, version="2"))
    term.clock.now += 3600
    await term.reconciler.reconcile()
    assert NODE in term.state.closed_nodes.now()
    assert (term.server.deleted, term.server.reads) == ([], 0)


@pytest.mark.parametrize("error", [UnreachableError("GET"), None])
async def test_the_report_that_the_api_server_has_decides(error: Exception | None) -> None:
    """A card that was added since the copy was read, or an API server that does not answer: nothing is deleted."""
    term = Term()
    term.reports(report(0, 1))
    term.runs(on_card("a", 1))
    term.reports(report(0, version="2"), live=report(0, 1, version="3"))
    term.server.read_error = error
    await term.reconciler.reconcile()
    assert (term.server.deleted, term.server.reads, term.events()) == ([], 1, [])


async def test_a_pod_that_got_an_added_card_is_not_suspected() -> None:
    """What pods hold is read first: the pod's reservation comes after the look at what pods hold."""
    term = Term()
    term.reports(report(0))
    looking = asyncio.create_task(term.reconciler.reconcile())
    await asyncio.sleep(0)  # the look has read what pods hold
    term.runs(on_card("a", 1))
    await looking
    assert (term.server.deleted, term.server.reads) == ([], 0)


async def test_an_instance_counts_as_its_card() -> None:
    """As HAMi names it, by a suffix of the UUID, and as agents report it, by its parent."""
    term = Term()
    term.reports(report(0))
    shares = {
        "suffix": CardShare(f"GPU-{NODE}-0[1-2]", 0, 100, 0),
        "parent": CardShare("MIG-7", 0, 100, 0, parent=f"GPU-{NODE}-0"),
        "gone": CardShare("MIG-8", 1, 100, 0, parent=f"GPU-{NODE}-1"),
    }
    for name, share in shares.items():
        annotations = {ALLOCATION: encode(Allocation(NODE, {"main": (share,)}))}
        term.runs(pod(name, memory=100, node=NODE, annotations=annotations, phase="Running"))
    await term.reconciler.reconcile()
    assert term.server.deleted == [("gone", "uid-gone")]


async def test_one_failure_does_not_stop_the_rest() -> None:
    """404 and another UID mean that the pod is gone; a refusal is tried again."""
    term = Term()
    term.reports(report(0, 1))
    term.runs(*(on_card(name, 1) for name in ("refused", "gone", "goes")))
    term.reports(report(0, version="2"))
    term.server.errors = {
        "refused": ApiError(request="DELETE", status=403, reason="Forbidden", message="a policy"),
        "gone": NotFoundError(request="DELETE", status=404, reason="NotFound", message="no such pod"),
    }
    await term.reconciler.reconcile()
    assert term.server.deleted == [("goes", "uid-goes")]
    term.server.errors = {}
    await term.reconciler.reconcile()
    assert ("refused", "uid-refused") in term.server.deleted


async def test_a_pod_that_ends_already_is_not_deleted_again() -> None:
    """Its containers have their grace period."""
    term = Term()
    term.reports(report(0))
    term.runs(on_card("ends", 1, deleted="2026-01-01T00:00:00Z"))
    await term.reconciler.reconcile()
    assert term.server.deleted == []


async def test_the_claim_of_the_pod_fails_until_the_card_is_back() -> None:
    """Its status says which card is missing."""
    term = Term("keep")
    mine = claim("c")
    term.state.set_claim(mine)
    term.reports(report(0, 1))
    running = on_card("a", 1)
    running.metadata.annotations["gpu.scheduling/claim"] = "c"
    term.runs(running)
    name = ("default", "c")

    def reason() -> tuple[str, str]:
        status = term.state.claims._status(name)
        return status.phase, status.conditions[0].reason

    assert reason() == ("Bound", "Bound")
    term.reports(report(0, version="2"))
    await term.reconciler.reconcile()
    assert reason() == ("Failed", "DeviceMissing")
    term.pods._set(
        msgspec.structs.replace(running, metadata=msgspec.structs.replace(running.metadata, labels={"x": "y"}))
    )
    assert reason() == ("Failed", "DeviceMissing")  # whatever else changes of the pod
    assert f"does not have card GPU-{NODE}-1 any more" in term.state.claims._status(name).message
    term.reports(report(0, 1, version="3"))
    await term.reconciler.reconcile()
    assert reason() == ("Bound", "Bound")


async def test_nothing_happens_before_the_delay() -> None:
    """After a reboot drivers may be ready later than the scheduler."""
    term = Term()
    term.reports(report(0))
    term.runs(on_card("a", 1))
    running = asyncio.create_task(term.reconciler.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert (term.server.deleted, term.server.reads) == ([], 0)
    running.cancel()
