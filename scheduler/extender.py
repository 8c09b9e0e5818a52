"""The scheduler behind a stock kube-scheduler: it asks which nodes fit and how well, and has us bind.

Nothing is held between `/filter` and `/bind`, so nothing has to expire, and a pod that kube-scheduler gives up leaves
nothing behind: `/bind` checks and reserves in one step, and refuses where another pod was faster; kube-scheduler tries
again then.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from cluster.api import Api
from cluster.errors import ClusterError, NotFoundError
from cluster.reflector import Reflector
from cluster.resource import PODS
from scheduler import candidates, cycle
from scheduler.binder import Outcome
from scheduler.commitment import Committer
from scheduler.cycle import Waiting
from scheduler.extender_api import Args, BindingArgs, FilterResult, HostPriority
from scheduler.metrics import Metrics
from scheduler.objects import Pod
from scheduler.state import State

log = logging.getLogger(__name__)

_NEWS_SECONDS = 0.02
_BETWEEN_SECONDS = 0.2


class RefusedError(Exception):
    """A pod is not bound, and why."""


class Extender:
    """The verbs, for one term of leading."""

    def __init__(
        self,
        *,
        api: Api,
        state: State,
        pods: Reflector[Pod],
        committer: Committer,
        metrics: Metrics,
        names: frozenset[str],
        is_trusted: Callable[[], bool],
    ) -> None:
        """Bind pods whose schedulerName is one of `names`."""
        self._api = api
        self._state = state
        self._pods = pods
        self._committer = committer
        self._metrics = metrics
        self._names = names
        self._is_trusted = is_trusted
        self._is_open = False
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._heard_at = -math.inf

    @property
    def is_trusted(self) -> bool:
        """Whether what it answers is still worth something."""
        return self._is_open and self._is_trusted()

    async def run(self) -> None:
        """Be there to be asked, until cancelled; nobody is bound after that."""
        self._is_open = True
        try:
            await asyncio.Event().wait()
        finally:
            self._is_open = False

    async def drain(self, seconds: float) -> bool:
        """Wait for the Bindings under way, at most `seconds`; answer whether none is left."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)
        return not self._under_way

    def abandon(self) -> None:
        """Give up the Bindings under way."""
        for task in self._under_way.values():
            task.cancel()

    def filter(self, args: Args) -> FilterResult:
        """Answer which nodes take the pod."""
        with self._metrics.extender_seconds.labels("filter").time():
            return candidates.filter_(self._state, args)

    async def filter_by_news(self, args: Args) -> FilterResult:
        """Answer the same, but hear what else happens before a pod is told that it waits for others to leave.

        kube-scheduler asks about a waiting pod as soon as it hears that another has left, and we may hear that a moment
        later. Refused then, the pod would wait for the next event of the cluster. It is enough to listen now and then:
        pods that are asked about after this one are judged by what was heard.
        """
        answer, now = self.filter(args), asyncio.get_running_loop().time()
        if not answer.awaits_a_pod or now < self._heard_at + _BETWEEN_SECONDS:
            return answer
        self._heard_at = now
        before = self._state.ledger.changes.state
        await asyncio.sleep(_NEWS_SECONDS)
        return answer if self._state.ledger.changes.state == before else self.filter(args)

    def prioritize(self, args: Args) -> list[HostPriority]:
        """Answer how good the nodes are."""
        with self._metrics.extender_seconds.labels("prioritize").time():
            return candidates.prioritize(self._state, args)

    async def bind(self, args: BindingArgs) -> None:
        """Reserve cards for the pod on the node that kube-scheduler chose, and bind it.

        A Binding that has begun goes on to its end, whether or not the caller still waits.

        Raises:
            RefusedError: the pod is not bound, and holds nothing.
        """
        with self._metrics.extender_seconds.labels("bind").time():
            await self._bind(args)

    async def _bind(self, args: BindingArgs) -> None:
        if args.node not in self._state.fleet:
            raise RefusedError(f"the cluster has no node {args.node}")
        pod = await self._pod(args)
        home = self._state.fleet.home(pod.uid)
        if home:
            raise RefusedError(f"pod {pod}: it is bound, or being bound, to {home}")
        with self._metrics.decide_seconds.labels("node").time():
            decision = cycle.take(self._state, pod, args.node)
        if isinstance(decision, Waiting):
            self._metrics.decisions.labels("waiting").inc()
            fields = {"pod": str(pod), "uid": pod.uid, "outcome": "waiting", "node": args.node}
            log.info("pod %s is not bound to %s: %s", pod, args.node, decision.note, extra=fields)
            raise RefusedError(f"pod {pod}: {decision.note}")

        async def commit() -> None:
            result = await self._committer.commit(pod, decision)
            if result.outcome is not Outcome.BOUND:
                raise RefusedError(f"pod {pod} was not bound to {args.node}: {result.outcome.value}: {result.note}")

        task = self._under_way[pod.uid] = asyncio.create_task(commit())
        task.add_done_callback(lambda done: self._finished(pod, done))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise RefusedError(f"pod {pod}: the term ended while its Binding was under way") from None

    def _finished(self, pod: Pod, task: asyncio.Task[None]) -> None:
        del self._under_way[pod.uid]
        error = None if task.cancelled() else task.exception()
        # A refusal is the caller's to tell, and was logged, in case that nobody waits for it any more.
        if error is not None and not isinstance(error, RefusedError):
            log.error("a decision was not carried out", exc_info=error)

    async def _pod(self, args: BindingArgs) -> Pod:
        """Answer the pod that is meant, as it is known; read where our cache does not show that one yet."""
        pod = self._pods.get(args.podname, args.podnamespace)
        if pod is None or pod.uid != args.poduid:
            pod = await self._read(args)
            # The cache will find out when it is deleted, even if it never shows up in a watch.
            self._pods.learn(pod)
        reason = _refusal(pod, args, self._names)
        if reason:
            raise RefusedError(f"pod {pod}: {reason}")
        return pod

    async def _read(self, args: BindingArgs) -> Pod:
        try:
            return await self._api.get(PODS, Pod, name=args.podname, namespace=args.podnamespace)
        except NotFoundError:
            raise RefusedError(f"there is no pod {args.podnamespace}/{args.podname}") from None
        except ClusterError as error:
            raise RefusedError(f"pod {args.podnamespace}/{args.podname} cannot be read: {error}") from None


def _refusal(pod: Pod, args: BindingArgs, names: frozenset[str]) -> str:
    """Answer why this pod is not to be bound, empty where it may be."""
    if pod.uid != args.poduid:
        return f"its UID is {pod.uid}, not {args.poduid}: another pod has the name now"
    if pod.spec.node_name:
        return f"it is bound to {pod.spec.node_name} already"
    if pod.finished or pod.metadata.deletion_timestamp:
        return "it is finished or being deleted"
    if pod.spec.scheduler_name not in names:
        return f"its schedulerName is {pod.spec.scheduler_name}; ours are {', '.join(sorted(names))}"
    if pod.spec.scheduling_gates:
        return "it has scheduling gates"
    return ""
