"""The extender's verbs over a state, without a cluster: what is bound is only noted."""

from typing import Any

import msgspec

from allocation.names import SCHEDULER_NAME
from cluster.api import Api
from cluster.errors import ApiError, NotFoundError
from cluster.events import Recorder
from cluster.reflector import Reflector
from cluster.resource import PODS
from scheduler import extender_api
from scheduler.binder import Binder
from scheduler.commitment import Committer
from scheduler.extender import Extender, RefusedError
from scheduler.extender_api import BindingArgs
from scheduler.metrics import Metrics
from scheduler.objects import Pod
from scheduler.state import State

TOKEN = "1/test"  # noqa: S105 -- of a term, no secret


class Bindings(Api):
    """An API server that knows `pods` and takes Bindings, or refuses them with `error`."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.written: list[dict[str, Any]] = []
        self.error: ApiError | None = None

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Take a Binding, or show a pod."""
        if method == "POST" and path.endswith("/binding"):
            if self.error is not None:
                raise self.error
            self.written.append(how["body"])
            return b"{}"
        found = self.pods.get(path.rpartition("/")[2])
        if found is None:
            raise NotFoundError(request=path, status=404, reason="NotFound", message="no such pod")
        return msgspec.json.encode(found)


def extending(state: State, api: Bindings | None = None, *, trusted: bool = True) -> Extender:
    """Answer the verbs, open as in a term under way."""
    api = api or Bindings()
    metrics = Metrics(ledger=lambda: state.ledger)
    committer = Committer(
        state=state,
        binder=Binder(api, token=TOKEN, timeout_seconds=1),
        recorder=Recorder(api, component="test", instance="test"),
        metrics=metrics,
    )
    made = Extender(
        api=api,
        state=state,
        pods=Reflector(api, PODS, Pod, on_set=state.set_pod, on_delete=state.drop_pod),
        committer=committer,
        metrics=metrics,
        names=frozenset((SCHEDULER_NAME,)),
        is_trusted=lambda: trusted,
    )
    made._is_open = True
    return made


def filtered(made: Extender, pod: Pod, *names: str) -> dict[str, Any]:
    """Ask which of the nodes called `names` take the pod, as kube-scheduler does."""
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    answer: dict[str, Any] = msgspec.json.decode(extender_api.encode(made.filter(extender_api.decode_args(body))))
    return answer


def reasons(answer: dict[str, Any]) -> dict[str, str]:
    """Answer why nodes do not fit, whether an eviction could cure it or not."""
    return {**answer.get("failedNodes", {}), **answer.get("failedAndUnresolvableNodes", {})}


def scored(made: Extender, pod: Pod, *names: str) -> dict[str, int]:
    """Ask how good the nodes are."""
    body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})
    return {each.host: each.score for each in made.prioritize(extender_api.decode_args(body))}


async def bound(made: Extender, pod: Pod, node: str, *, uid: str = "") -> str:
    """Have the pod bound; answer the error, empty where it was."""
    meta = pod.metadata
    try:
        await made.bind(BindingArgs(meta.name, meta.namespace, uid or meta.uid, node))
    except RefusedError as error:
        return str(error)
    return ""
