"""The verbs of the extender over a state, with an API server that only records Bindings."""

import time
from typing import Any

import msgspec

from allocation.names import SCHEDULER_NAME
from allocation.steps import finish
from cluster.api import Api
from cluster.errors import ApiError, NotFoundError
from cluster.events import Recorder
from cluster.gpu_binding import GpuBinding
from cluster.informer import Informer
from cluster.resource import PODS
from scheduler.binding.binder import Binder
from scheduler.binding.binding_cycle import BindingCycle
from scheduler.binding.bound_cards_check import BoundCardsCheck
from scheduler.binding.failure_handler import FailureHandler
from scheduler.extender import filtering, wire
from scheduler.extender.errors import RefusedError
from scheduler.extender.gang_rehearsals import GangRehearsals
from scheduler.extender.gathering import Gathering
from scheduler.extender.offered_pods import OfferedPods
from scheduler.extender.rejected_pods import RejectedPods
from scheduler.extender.verbs import Extender
from scheduler.extender.wire import BindingArgs
from scheduler.gang_scheduling.gang_binding import GangBinding
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.settings import GangSettings
from scheduler.state.cluster_state import ClusterState
from tests.scheduler.support import leasing
from tests.scheduler.support.fencing import fenced
from tests.scheduler.support.preempting import chooser_of
from tests.scheduler.support.scheduling import cycle_of

TOKEN = "1/test"  # noqa: S105 -- the token of a term is not a secret


class Bindings(Api):
    """An API server with `pods` and `gpu_bindings`: it accepts Leases, and Bindings unless it refuses with `error`."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.gpu_bindings: dict[str, GpuBinding] = {}
        self.written: list[dict[str, Any]] = []
        self.error: ApiError | None = None

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Take a Binding or a Lease, or show a pod or a GPUBinding."""
        if method == "POST" and path.endswith("/leases"):
            return b"{}"
        if method == "POST" and path.endswith("/binding"):
            if self.error is not None:
                raise self.error
            self.written.append(how["body"])
            return b"{}"
        objects = self.gpu_bindings if "/gpubindings/" in path else self.pods
        found = objects.get(path.rpartition("/")[2])
        if found is None:
            raise NotFoundError(request=path, status=404, reason="NotFound", message="no such object")
        return msgspec.json.encode(found)


def extending(
    state: ClusterState,
    api: Bindings | None = None,
    *,
    trusted: bool = True,
    reads_live: bool = False,
    gangs: GangSettings | None = None,
) -> Extender:
    """Return the verbs as in a running term."""
    api = api or Bindings()
    metrics = Metrics()
    metrics.show_cards(lambda: state.ledger)
    cycle = cycle_of(state)
    recorder = Recorder(api, component="test", instance="test")
    writes = fenced(api, token=TOKEN)
    failures = FailureHandler(writes, queue=state.queue, cycle=cycle, recorder=recorder, metrics=metrics)
    binding_cycle = BindingCycle(
        binder=Binder(writes),
        leases=leasing.keeper(api, state, token=TOKEN),
        bound_cards=BoundCardsCheck(api, state.settings.bindings),
        claims=state.claims,
        failures=failures,
        recorder=recorder,
        metrics=metrics,
    )
    pods = Informer(api, PODS, Pod, on_upsert=state.set_pod, on_delete=state.drop_pod)
    rejected = RejectedPods(pods, clock=time.monotonic)
    offered = OfferedPods(
        api,
        pods=pods,
        device_classes=state.device_classes,
        names=frozenset((SCHEDULER_NAME,)),
        reads_live=lambda: reads_live,
    )
    gathering = Gathering(
        state,
        binding_cycle,
        GangBinding(binding_cycle, recorder=recorder, concurrent=8, is_trusted=lambda: trusted),
        rehearsals=GangRehearsals(cycle, changes=lambda: rejected.changes, metrics=metrics),
        rejected=rejected,
        metrics=metrics,
        settings=gangs or GangSettings(),
    )
    made = Extender(
        state=state,
        pods=offered,
        cycle=cycle,
        binding_cycle=binding_cycle,
        metrics=metrics,
        chooser=chooser_of(state),
        rejected=rejected,
        gathering=gathering,
        is_trusted=lambda: trusted,
    )
    made._is_open = True
    return made


def pods_of(made: Extender) -> Informer[Pod]:
    """Return the informer of the pods."""
    return made._pods._pods


def cache(made: Extender, *pods: Pod) -> None:
    """Let the informer of the pods know these."""
    for each in pods:
        pods_of(made).add_if_new(each)


def delete(made: Extender, pod: Pod) -> None:
    """Let the informer see that a pod does not exist any more."""
    pods_of(made)._delete(pod)


def filtered(made: Extender, pod: Pod, *names: str) -> dict[str, Any]:
    """Return the response of `/filter` for the nodes `names`."""
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    response: dict[str, Any] = msgspec.json.decode(
        wire.encode(finish(filtering.filter_(made._state, wire.decode_args(body))))
    )
    return response


def reasons(response: dict[str, Any]) -> dict[str, str]:
    """Return the reasons of nodes that do not fit, resolvable or not."""
    return {**response.get("failedNodes", {}), **response.get("failedAndUnresolvableNodes", {})}


def scored(made: Extender, pod: Pod, *names: str) -> dict[str, int]:
    """Return the scores of `/prioritize` for the nodes `names`."""
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    return {
        each.host: each.score for each in finish(filtering.prioritize(made._state, wire.decode_args(body), pod=pod))
    }


async def bound(made: Extender, pod: Pod, node: str, *, uid: str = "") -> str:
    """Bind the pod by `/bind`; return the error, or an empty string."""
    meta = pod.metadata
    try:
        await made.bind(BindingArgs(meta.name, meta.namespace, uid or meta.uid, node))
    except RefusedError as error:
        return str(error)
    return ""
