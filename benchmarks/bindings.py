"""What GPUBindings cost: the decisions about pods of no application next to them, and those about bound pods.

Two schedulers in this process have equal fleets, one of them with bindings and pods of applications. They decide about
the same plain pods in turns.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Final

import msgspec

from allocation.names import APP_NAME, APP_OWNER, CONSUME_POLICY
from allocation.settings import AllocationSettings, BindingSettings, BindingsMode
from allocation.steps import finish
from benchmarks import cluster, extender, fleets
from benchmarks.filtering import filter_arguments
from benchmarks.results import Row, Sample, microseconds
from cluster import process
from cluster.gpu_binding import GpuBinding
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.result import Scheduled
from scheduler.extender import filtering, wire
from scheduler.objects import Pod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster_state import ClusterState

NAME = "bindings"
_APPS: Final = 200
_CARDS_OF_APP: Final = 5
_PODS_OF_APP: Final = 2
"""Running pods of most applications, each with one card."""
_WAITING_OF_APP: Final = 1
_MOST_RATIO: Final = 1.05
_CREATED: Final = "2026-01-01T00:00:00Z"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    nodes, decisions = (40, 20) if smoke else (5_000, 2_000)
    apps = 4 if smoke else _APPS
    without, bound = _state(nodes, "off"), _state(nodes, "labelled")
    _bind(bound, nodes, apps)
    cycles = {"without": SchedulingCycle(without), "with": SchedulingCycle(bound)}
    _run_pods(bound, cycles["with"], apps)
    process.settle()
    fleet = f"{nodes:,} nodes of {fleets.CARDS} cards, {apps * _CARDS_OF_APP:,} bindings of {apps} applications"
    yield from _plain(cycles, fleet, decisions)
    yield from _bound(bound, cycles["with"], fleet, min(decisions, 500), apps)
    yield _filter(bound, nodes, fleet, min(decisions, 100))
    yield _set(bound, fleet, decisions)


def _plain(cycles: dict[str, SchedulingCycle], fleet: str, decisions: int) -> Iterator[tuple[Row, Sample]]:
    """Measure decisions about pods of no application: equal ones, which the rankings know, and those like no other."""
    chance = random.Random(5)
    for kind, requests in (("repeating", lambda _: 3000), ("a shape never seen", lambda number: 3001 + number)):
        count = decisions if kind == "repeating" else min(decisions, 200)
        seconds: dict[str, list[float]] = {each: [] for each in cycles}
        for number in range(count):
            for each in chance.sample(sorted(cycles), len(cycles)):
                pod = _pod(f"plain-{number}", memory_mib=requests(number))
                seconds[each].append(_decide(cycles[each], pod))
                cycles[each].forget(pod)
        ratio = median(seconds["with"]) / median(seconds["without"])
        what = f"decision, a pod of no application, {kind}, {fleet}"
        yield (
            Row(
                NAME,
                what,
                f"{microseconds(seconds['with'])}, {ratio:.2f} × without bindings",
                f"mode off, without bindings {microseconds(seconds['without'])}",
                f"! ≤ {_MOST_RATIO} × without bindings",
                ratio <= _MOST_RATIO,
            ),
            Sample(NAME, what, seconds["with"]),
        )


def _bound(
    state: ClusterState, cycle: SchedulingCycle, fleet: str, decisions: int, apps: int
) -> Iterator[tuple[Row, Sample]]:
    """Measure decisions about pods of applications, which fit or wait."""
    for what, policy, consumed in (
        ("a bound pod, policy single", "single", False),
        ("a bound pod, policy all", "all", False),
        ("a bound pod whose cards are all consumed, with reasons", "single", True),
    ):
        seconds = []
        for number in range(decisions):
            app = number % apps
            others = [_app_pod(f"other-{number}-{each}", app) for each in range(_CARDS_OF_APP)] if consumed else []
            for other in others:
                finish(cycle.schedule(other))
                state.bindings.set_pod(other)
            pod = _app_pod(f"{policy}-{number}", app, policy=policy)
            seconds.append(_decide(cycle, pod, fits=not consumed))
            for each in (pod, *others):
                cycle.forget(each)
                state.bindings.drop_pod(each.uid)
        text = f"decision, {what}, {fleet}"
        yield Row(NAME, text, microseconds(seconds)), Sample(NAME, text, seconds)


def _filter(state: ClusterState, nodes: int, fleet: str, requests: int) -> tuple[Row, Sample]:
    """Measure what `/filter` computes for a bound pod and all nodes, without the transport."""
    body = msgspec.json.decode(filter_arguments(nodes, 3000))
    body["Pod"]["metadata"] |= {"labels": _labels(0, "single"), "uid": "asks"}
    data = msgspec.json.encode(body)

    def respond() -> None:
        wire.encode(finish(filtering.filter_(state, wire.decode_args(data))))

    seconds = [_timed(respond) for _ in range(requests)]
    what = f"/filter for a bound pod and all node names, without HTTP, {fleet}"
    return Row(NAME, what, microseconds(seconds)), Sample(NAME, what, seconds)


def _set(state: ClusterState, fleet: str, changes: int) -> tuple[Row, Sample]:
    """Measure a changed binding, which wakes the pods of its application."""
    seconds = []
    for number in range(changes):
        changed = _binding(0, fleets.node(0), memory=str(1000 + number % 2))
        seconds.append(_timed(lambda changed=changed: state.bindings.set(changed)))  # type: ignore[misc]
    what = f"a changed binding, {_PODS_OF_APP} running and {_WAITING_OF_APP} waiting pods of its application, {fleet}"
    return Row(NAME, what, microseconds(seconds)), Sample(NAME, what, seconds)


def _timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _decide(cycle: SchedulingCycle, pod: Pod, *, fits: bool = True) -> float:
    """Return the seconds of a decision, whose reservation stays."""
    begin = time.perf_counter()
    result = finish(cycle.schedule(pod))
    taken = time.perf_counter() - begin
    if isinstance(result, Scheduled) is not fits:
        raise SystemExit(f"bindings: pod {pod}: unexpected result {result}")
    return taken


# ---- the cluster -----------------------------------------------------------------------------------------------------


def _state(nodes: int, mode: BindingsMode) -> ClusterState:
    """Return a fleet that is half full, whose agents are all alive."""
    state = ClusterState(
        settings=AllocationSettings(bindings=BindingSettings(mode)),
        make_queue=partial(SchedulingQueue, clock=time.monotonic, first_backoff=1.0, longest_backoff=1.0),
        clock=time.monotonic,
    )
    extender.fill(state, nodes)
    return state


def _bind(state: ClusterState, nodes: int, apps: int) -> None:
    """Give each application cards of nodes that are spread over the fleet."""
    count = apps * _CARDS_OF_APP
    for number in range(count):
        node = fleets.node(number * nodes // count)
        state.bindings.set(_binding(number, node, memory="1000"))
        state.bindings.set_share_modes(node, {cluster.card(node, at): "memory-slicing" for at in range(fleets.CARDS)})


def _binding(number: int, node: str, *, memory: str) -> GpuBinding:
    """Return a binding as the API server sends it."""
    app = number // _CARDS_OF_APP
    spec = {
        "uuid": cluster.card(node, number % fleets.CARDS),
        "appName": _app(app),
        "owner": "alice",
        "namespace": cluster.NAMESPACE,
        "podSelector": {"matchLabels": {APP_NAME: _app(app)}},
        "memory": memory,
    }
    meta = {"name": f"binding-{number}", "uid": str(number), "creationTimestamp": _CREATED}
    return msgspec.convert({"metadata": meta, "spec": spec}, GpuBinding)


def _run_pods(state: ClusterState, cycle: SchedulingCycle, apps: int) -> None:
    """Run two pods of each application, and let one wait."""
    for app in range(apps):
        for number in range(_PODS_OF_APP):
            pod = _app_pod(f"running-{app}-{number}", app)
            _decide(cycle, pod)
            state.bindings.set_pod(pod)
        for number in range(_WAITING_OF_APP):
            state.set_pod(_app_pod(f"waiting-{app}-{number}", app))


def _app_pod(name: str, app: int, *, policy: str = "single") -> Pod:
    """Return a pod of an application."""
    pod = _pod(name, memory_mib=3000)
    pod.metadata.labels = _labels(app, policy)
    return pod


def _labels(app: int, policy: str) -> dict[str, str]:
    return {APP_NAME: _app(app), APP_OWNER: "alice", CONSUME_POLICY: policy}


def _app(number: int) -> str:
    return f"app-{number}"


def _pod(name: str, *, memory_mib: int) -> Pod:
    pod = msgspec.convert(cluster.fractional(name, memory_mib=memory_mib), Pod)
    pod.metadata.uid = name
    return pod
