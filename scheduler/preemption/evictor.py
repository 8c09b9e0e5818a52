"""Carries out a preemption: nominates the node, evicts the victims, and records it in events and conditions.

Each Eviction carries the leader's token, so the API server refuses those of a former leader, and the victim's UID, so
it never meets another pod. The preemptor's `status.nominatedNodeName` is written before any pod is evicted: whatever
ends this process, the next leader knows for which pod the cards become free.
"""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

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

_ATTEMPTS: Final = 5
_GATEWAY_TIMEOUT: Final = 504
_BUDGET: Final = re.compile(r"disruption budget|more than one PodDisruptionBudget")
"""What the API server says of an Eviction that budgets refuse; the codes, 429 and 500, also mean other things."""
_OTHER_UID: Final = re.compile(r"UID in the precondition|metadata\.uid: .* immutable")
"""What the API server says of an Eviction or a patch with the UID of a pod that was deleted and created again."""


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
        preemptor: Pod,
        node: str,
        victims: Sequence[EligiblePod],
        *,
        is_needed: Callable[[], bool] = lambda: True,
        is_ending: Callable[[EligiblePod], bool] = lambda _: False,
    ) -> tuple[EvictionOutcome, list[EligiblePod]]:
        """Nominate `node` for the preemptor and evict the victims.

        Victims with a PodDisruptionBudget come first, so that a refusal costs no other pod, and then those that violate
        one; otherwise their order is kept. The first failure ends it, and so does the preemptor if it does not need the
        node any more, which `is_needed` tells. A victim that `is_ending` by now, for another pod, is left out. Each has
        its own grace period.

        Returns:
            The outcome once it is known, or given up, and the victims that the API server has evicted, in this order;
            unless the outcome is EVICTED, the others live.
        """
        outcome, why = EvictionOutcome.EVICTED, EvictionOutcome.EVICTED.value
        evicted: list[EligiblePod] = []
        try:
            await self._nominate(preemptor, node)
            for victim in sorted(victims, key=lambda each: (each.budget is None, not each.violates)):
                if not is_ending(victim) and await self._evict(victim, is_needed):
                    evicted.append(victim)
                    await self._announce(victim, preemptor, node)
        except _EndedError as ended:
            outcome, why = ended.outcome, f"{ended.outcome.value}: {ended}"
        if evicted:
            reclaimed = sum(each.reclaimed_for is not None for each in evicted)
            which = f"pods, {reclaimed} of queues above their entitlement," if reclaimed else "pods of lower priority"
            note = f"Evicted {len(evicted)} of {len(victims)} {which} on node {node}"
            self._recorder.record(
                preemptor.reference, type="Normal", reason="Preempting", action="Preempting", note=note
            )
        fields = {"pod": str(preemptor), "uid": preemptor.uid, "outcome": outcome.value, "node": node}
        log.info("pod %s: %d of %d victims on %s: %s", preemptor, len(evicted), len(victims), node, why, extra=fields)
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
            for is_rehearsal in (True, False):
                for pod in pods:
                    if await self._end(pod, is_rehearsal=is_rehearsal) and not is_rehearsal:
                        self._recorder.record(
                            pod.reference, type="Warning", reason=reason, action="Evicting", note=note
                        )
        except (_EndedError, _BudgetError) as ended:
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

    async def _nominate(self, preemptor: Pod, node: str) -> None:
        try:
            await self._patch_status(preemptor, {"nominatedNodeName": node})
        except _GoneError as error:
            raise _EndedError(EvictionOutcome.GONE, str(error)) from error

    async def _evict(self, victim: EligiblePod, is_needed: Callable[[], bool]) -> bool:
        """Evict a victim, or delete it where it violates a budget; return False if it was gone.

        An Eviction is sent first in any case, by which the API server checks that this replica leads. A deletion cannot
        carry the leader's token, so it has only the victim's UID.
        """
        path, body = _eviction(victim.pod)
        try:
            # The refusal of a budget is a 429, too, and does not change within seconds.
            await self._send(lambda: self._fenced.create(path, body, repeat_if_busy=False), is_needed)
        except _GoneError:
            return False
        except _BudgetError:
            if not victim.violates:
                raise
            return await self._delete(victim.pod, is_needed)
        return True

    async def _end(self, pod: Pod, *, is_rehearsal: bool) -> bool:
        """Evict a pod, or find out whether that would be refused; return False if it was gone."""
        path, body = _eviction(pod)
        try:
            await self._send(
                lambda: self._fenced.create(path, body, repeat_if_busy=False, dry_run=is_rehearsal),
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

    async def _announce(self, victim: EligiblePod, preemptor: Pod, node: str) -> None:
        """Say why a victim is evicted, in its condition DisruptionTarget and in an event; failures change nothing.

        The API server sets the condition with an Eviction, so its lastTransitionTime is right; a deletion has none.
        """
        # The preemptor may be in another namespace, so only its UID is named.
        pod, taker = victim.pod, victim.reclaimed_for
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
