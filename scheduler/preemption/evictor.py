"""Carries out a preemption: nominates the nodes, evicts the victims, and records it in events and conditions.

Several victims are evicted only after dry runs of all their Evictions: what would be refused costs no pod. After that
only what changes within these milliseconds can still refuse one.

Each Eviction carries the leader's token, so the API server refuses those of a former leader, and the victim's UID, so
it never meets another pod. The preemptor's `status.nominatedNodeName` is written before any pod is evicted: whatever
ends this process, the next leader knows for which pods the cards become free.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from cluster.api import JSON_PATCH, STRATEGIC_MERGE_PATCH
from cluster.backoff import write_backoff
from cluster.errors import ApiError, ClusterError, ConflictError, NotFoundError
from cluster.events import Recorder
from cluster.metadata import timestamp
from cluster.resource import PODS
from scheduler.fenced_api import FencedApi
from scheduler.metrics.labels import EvictionOutcome
from scheduler.objects import Pod
from scheduler.preemption.eligibility import EligiblePod

log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS: Final = 5
_NAMED: Final = 8
"""The nodes that a line of the log names."""
_GATEWAY_TIMEOUT: Final = 504
_BUDGET: Final = re.compile(r"disruption budget|more than one PodDisruptionBudget")
"""What the API server says of an Eviction that budgets refuse; the codes, 429 and 500, also mean other things."""
_OTHER_UID: Final = re.compile(r"UID in the precondition|metadata\.uid: .* immutable")
"""What the API server says of an Eviction or a patch with the UID of a pod that was deleted and created again."""


class Nomination(msgspec.Struct, frozen=True):
    """A pod for which others are evicted, alone or with its gang: the node that it will get, and who has to go for it.

    Attributes:
        pod: the preemptor.
        node: its node.
        victims: the pods that are evicted for it, none of them for another pod.
    """

    pod: Pod
    node: str
    victims: tuple[EligiblePod, ...] = ()


class _GoneError(Exception):
    """The pod is deleted, or another pod has its name."""


class _EndedError(Exception):
    """Nothing more is written."""

    def __init__(self, outcome: EvictionOutcome, note: str) -> None:
        self.outcome = outcome
        super().__init__(note)


class _BudgetError(_EndedError):
    """A PodDisruptionBudget refuses an Eviction, or the pod has several."""


class Evictor:
    """Evicts pods for one leader."""

    def __init__(self, fenced: FencedApi, *, recorder: Recorder) -> None:
        """Evict as long as the leader is trusted, and no longer: nothing is sent without trust, not even again."""
        self._fenced = fenced
        self._recorder = recorder

    async def evict(
        self,
        nominations: Sequence[Nomination],
        *,
        is_needed: Callable[[], bool] = lambda: True,
        is_ending: Callable[[EligiblePod], bool] = lambda _: False,
    ) -> tuple[EvictionOutcome, list[EligiblePod]]:
        """Nominate the nodes of a pod, or of the pods of a gang, and evict the victims.

        Victims with a PodDisruptionBudget come first, so that a refusal costs no other pod, and then those that violate
        one; otherwise their order is kept. The first failure ends it, and so do the preemptors if they do not need the
        nodes any more, which `is_needed` tells; but of pods that go together all go once one is gone. A victim that
        `is_ending` by now, for another pod, is left out. Each has its own grace period.

        Returns:
            The outcome once it is known, or given up, and the victims that the API server has evicted, in this order;
            unless the outcome is EVICTED, the others live.
        """
        outcome, why = EvictionOutcome.EVICTED, EvictionOutcome.EVICTED.value
        evicted: list[EligiblePod] = []
        victims = [(victim, each) for each in nominations for victim in each.victims]
        victims.sort(key=lambda pair: (pair[0].budget is None, not pair[0].violates))
        begun: set[str] = set()
        """The units of which a pod is evicted."""
        try:
            await self._write_all(self._nominate, nominations)
            if len(victims) > 1:
                pending = [victim for victim, _ in victims if not is_ending(victim)]
                await self._write_all(lambda victim: self._rehearse(victim, is_needed), pending)
            for victim, nomination in victims:
                if is_ending(victim):
                    continue
                if await self._evict(victim, (lambda: True) if victim.unit in begun else is_needed):
                    evicted.append(victim)
                    begun |= {victim.unit} - {""}
                    await self._announce(victim, nomination)
        except _EndedError as ended:
            outcome, why = ended.outcome, f"{ended.outcome.value}: {ended}"
        for each in nominations:
            self._report(each, {victim.pod.uid for victim in evicted})
        first = nominations[0].pod
        nodes = ", ".join(list(dict.fromkeys(each.node for each in nominations if each.victims))[:_NAMED])
        fields = {"pod": str(first), "uid": first.uid, "outcome": outcome.value, "node": nodes}
        log.info("pod %s: %d of %d victims on %s: %s", first, len(evicted), len(victims), nodes, why, extra=fields)
        return outcome, evicted

    async def move(self, victim: EligiblePod, *, note: str, is_needed: Callable[[], bool]) -> EvictionOutcome:
        """Evict a pod that its controller creates again; the event on it has the `note`.

        Returns:
            The outcome once it is known, or given up; unless it is EVICTED, the pod lives.
        """
        try:
            if await self._evict(victim, is_needed):
                self._recorder.record(
                    victim.pod.reference, type="Normal", reason="Moved", action="Consolidating", note=note
                )
        except _EndedError as ended:
            log.info("pod %s: not moved: %s", victim.pod, ended, extra={"pod": str(victim.pod)})
            return ended.outcome
        return EvictionOutcome.EVICTED

    async def end(self, pods: Sequence[Pod], *, reason: str, note: str) -> EvictionOutcome:
        """Evict pods that are of no use without each other; the event on each has the `reason` and the `note`.

        Dry runs of all Evictions come first, so that none is evicted if one of them must not be.

        Returns:
            The outcome once it is known, or given up; unless it is EVICTED, some of the pods live.
        """
        try:
            await self._write_all(lambda pod: self._send_eviction(pod, is_rehearsal=True), pods)
            for pod in pods:
                if await self._send_eviction(pod):
                    self._recorder.record(pod.reference, type="Warning", reason=reason, action="Evicting", note=note)
        except _EndedError as ended:
            log.info("%d pods are not evicted, or not all of them: %s", len(pods), ended)
            return ended.outcome
        return EvictionOutcome.EVICTED

    async def clear_nomination(self, pod: Pod, node: str) -> bool:
        """Remove the nomination of `node` from a pod, unless it has another one by now.

        Returns:
            Whether the pod does not have this nomination any more; if not, the API server could not be asked.
        """
        body = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": "/status/nominatedNodeName", "value": node},
            {"op": "remove", "path": "/status/nominatedNodeName"},
        ]
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="status")
        try:
            await self._send(lambda: self._fenced.write("PATCH", path, body, content_type=JSON_PATCH))
        except _GoneError:
            return True
        except _EndedError as ended:
            if ended.outcome is EvictionOutcome.REFUSED:  # it has another nomination, or none
                return True
            log.warning("pod %s: its nomination of %s was not removed: %s", pod, node, ended)
            return False
        return True

    # ---- single writes ---------------------------------------------------------------------------------------------

    async def _write_all(self, write: Callable[[T], Awaitable[object]], items: Sequence[T]) -> None:
        """Call `write` for each item, some at a time; after the first failure, which is raised, for no more."""
        failures: list[_EndedError] = []

        async def one(item: T) -> None:
            try:
                if not failures:
                    await write(item)
            except _EndedError as ended:
                failures.append(ended)

        await self._fenced.write_each(one, items)
        if failures:
            raise failures[0]

    async def _nominate(self, nomination: Nomination) -> None:
        try:
            await self._patch_status(nomination.pod, {"nominatedNodeName": nomination.node})
        except _GoneError as error:
            raise _EndedError(EvictionOutcome.GONE, str(error)) from error

    async def _evict(self, victim: EligiblePod, is_needed: Callable[[], bool]) -> bool:
        """Evict a victim, or delete it where it violates a budget; return False if it was gone.

        An Eviction is sent first in any case, by which the API server checks that this replica leads. A deletion cannot
        carry the leader's token, so it has only the victim's UID.
        """
        try:
            return await self._send_eviction(victim.pod, is_needed)
        except _BudgetError:
            if not victim.violates:
                raise
            return await self._delete(victim.pod, is_needed)

    async def _rehearse(self, victim: EligiblePod, is_needed: Callable[[], bool]) -> None:
        """Find out whether the Eviction of a victim would be refused."""
        try:
            await self._send_eviction(victim.pod, is_needed, is_rehearsal=True)
        except _BudgetError:
            if not victim.violates:
                raise

    async def _send_eviction(
        self, pod: Pod, is_needed: Callable[[], bool] = lambda: True, *, is_rehearsal: bool = False
    ) -> bool:
        """Evict a pod, or find out whether that would be refused; return False if it was gone."""
        path, body = _eviction(pod)
        try:
            # The refusal of a budget is a 429, too, and does not change within seconds.
            await self._send(
                lambda: self._fenced.create(path, body, repeat_if_busy=False, dry_run=is_rehearsal), is_needed
            )
        except _GoneError:
            return False
        return True

    async def _delete(self, pod: Pod, is_needed: Callable[[], bool]) -> bool:
        """Delete a pod with its own grace period; return False if it was gone."""
        try:
            await self._send(lambda: self._fenced.delete(PODS, pod.metadata), is_needed)
        except _GoneError:
            return False
        return True

    def _report(self, nomination: Nomination, evicted: Collection[str]) -> None:
        """Record for a preemptor which of its victims are evicted, given by UID."""
        gone = [each for each in nomination.victims if each.pod.uid in evicted]
        if not gone:
            return
        reclaimed = sum(each.reclaimed_for is not None for each in gone)
        which = f"pods, {reclaimed} of queues above their entitlement," if reclaimed else "pods of lower priority"
        note = f"Evicted {len(gone)} of {len(nomination.victims)} {which} on node {nomination.node}"
        self._recorder.record(
            nomination.pod.reference, type="Normal", reason="Preempting", action="Preempting", note=note
        )

    async def _announce(self, victim: EligiblePod, nomination: Nomination) -> None:
        """Say why a victim is evicted, in its condition DisruptionTarget and in an event; failures change nothing.

        The API server sets the condition with an Eviction, so its lastTransitionTime is right; a deletion has none.
        """
        # The preemptor may be in another namespace, so only its UID is named.
        pod, taker, preemptor, node = victim.pod, victim.reclaimed_for, nomination.pod, nomination.node
        note = f"Preempted by pod {preemptor.uid} on node {node}"
        why = "preempting to accommodate a higher priority pod"
        if taker is not None:
            why = f"{victim.account.words} has more than its entitlement, and {taker.words} less"
            note = f"Evicted for pod {preemptor.uid} on node {node}: {why}"
        self._recorder.record(
            pod.reference,
            type="Normal",
            reason="Preempted" if taker is None else "Reclaimed",
            action="Preempting",
            note=note,
        )
        changed = {"lastTransitionTime": timestamp(time.time())} if victim.violates else {}
        condition = {
            **changed,
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"{preemptor.spec.scheduler_name}: {why}",
        }
        try:
            await self._patch_status(pod, {"conditions": [condition]})
        except _GoneError:
            return
        except _EndedError as ended:
            log.warning("pod %s: condition DisruptionTarget was not written: %s", pod, ended)

    async def _patch_status(self, pod: Pod, status: Mapping[str, Any]) -> None:
        await self._send(
            lambda: self._fenced.patch_status(PODS, pod.metadata, status, content_type=STRATEGIC_MERGE_PATCH)
        )

    async def _send(self, write: Callable[[], Awaitable[object]], is_needed: Callable[[], bool] = lambda: True) -> None:
        """Send a write that may be repeated, again while its outcome is unknown and the write is still needed.

        Raises:
            _GoneError: the pod is deleted, or another pod has its name.
            _BudgetError: a PodDisruptionBudget refuses an Eviction, or the pod has several.
            _EndedError: this replica is not trusted any more, the write is not needed any more, or the API server
                refuses it or does not answer.
        """
        backoff = write_backoff()
        attempt, is_doubtful = 0, False
        while True:
            if not self._fenced.is_trusted:
                raise _EndedError(EvictionOutcome.DEPOSED, "this replica is not trusted as the leader any more")
            if not is_needed():
                raise _EndedError(EvictionOutcome.GONE, "the preemptor does not need the node any more")
            try:
                await write()
            except ClusterError as error:
                if _is_gone(error):
                    raise _GoneError(str(error)) from error
                attempt += 1
                is_doubtful = is_doubtful or error.is_doubtful
                if attempt == _ATTEMPTS or not _is_repeatable(error):
                    outcome = EvictionOutcome.UNKNOWN if is_doubtful else EvictionOutcome.REFUSED
                    ended = _BudgetError if _is_of_budget(error) else _EndedError
                    raise ended(outcome, str(error)) from error
                log.warning("sent again: %s", error)
            else:
                return
            await asyncio.sleep(backoff.next())


def _eviction(pod: Pod) -> tuple[str, dict[str, Any]]:
    """Return the path and the body of the Eviction of a pod."""
    meta = pod.metadata
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": {"preconditions": {"uid": meta.uid}},
    }
    return PODS.path(namespace=meta.namespace, name=meta.name, subresource="eviction"), body


def _is_gone(error: ClusterError) -> bool:
    if isinstance(error, NotFoundError):
        return True
    return isinstance(error, ApiError) and _OTHER_UID.search(error.message) is not None


def _is_of_budget(error: ClusterError) -> bool:
    return isinstance(error, ApiError) and _BUDGET.search(error.message) is not None


def _is_repeatable(error: ClusterError) -> bool:
    """Whether no response came, or another client's write came first, to the pod or to its budget."""
    return not isinstance(error, ApiError) or error.status == _GATEWAY_TIMEOUT or isinstance(error, ConflictError)
