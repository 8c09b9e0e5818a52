"""One write binds and allocates: a Binding whose annotations are the allocation and the environment.

The API server merges those annotations into the pod in the same update that sets its node, with the pod's UID as
precondition. So a pod never has a node without its allocation, and a lost response does no harm:
the binder repeats the same Binding until its outcome is known. Until then the cards stay reserved, because the first
request may still be in progress.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from allocation import names
from allocation.delivery import DEFAULT, Delivery
from allocation.wire import environment, record
from cluster.backoff import write_backoff
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import PODS
from scheduler.cycle.result import Scheduled
from scheduler.fenced_api import FencedApi
from scheduler.metrics.labels import BindError, Outcome
from scheduler.objects import Pod

log = logging.getLogger(__name__)

_NO_DRY_RUN: Final = "does not support dry run"
"""What the API server says of a webhook with side effects, which it calls for no dry run."""
_FENCE: Final = "'tranche-fence'"
"""The policy that refuses Bindings of former leaders, as the API server names it (manifests/base/fence.yaml)."""


FailureReason = Literal["BindingFailed", "FailedScheduling", "GangIncomplete", "GpuBindingChanged", "LeaseConflict"]
"""Why a scheduled pod has no node, as its event says: the API server refused the Binding, a claim did not get its
volume, another pod of its gang was not bound, a card is not bound to the pod's application any more, or another pod has
the Lease of a card."""


class Result(msgspec.Struct, frozen=True):
    """An outcome.

    Attributes:
        outcome: whether the pod is bound.
        note: unless it is, the message of the API server, or what the volumes or Leases of the pod lack.
        reason: unless it is, that of the event.
    """

    outcome: Outcome
    note: str = ""
    reason: FailureReason = "BindingFailed"


class Binder:
    """Writes Bindings."""

    def __init__(
        self,
        fenced: FencedApi,
        *,
        delivery_of: Callable[[str], Delivery] = lambda _: DEFAULT,
        on_error: Callable[[BindError], object] = lambda _: None,
    ) -> None:
        """Bind for one leader; `delivery_of` returns how a node delivers cards.

        `on_error` is called for each attempt that the API server does not acknowledge.
        """
        self._fenced = fenced
        self._delivery_of = delivery_of
        self._on_error = on_error

    async def bind(self, pod: Pod, chosen: Scheduled, *, more: Mapping[str, str] = MappingProxyType({})) -> Result:
        """Write the Binding of a scheduled pod, with `more` annotations; return once its outcome is known."""
        path, body = _path(pod), self._binding(pod, chosen, more)
        backoff, doubtful_until = write_backoff(), -math.inf
        while True:
            try:
                await self._fenced.create(path, body)
            except ClusterError as error:
                if error.is_doubtful:
                    doubtful_until = time.monotonic() + self._fenced.timeout_seconds
                self._on_error(_kind(error))
                outcome = await self._outcome_after(error, pod, chosen, doubtful_until=doubtful_until)
                if outcome is not None:
                    return Result(outcome, str(error))
                log.warning("pod %s: the outcome of its Binding is unknown, trying again: %s", pod, error)
            else:
                return Result(Outcome.BOUND)
            await asyncio.sleep(backoff.next())

    async def rehearse(self, pod: Pod, chosen: Scheduled) -> str:
        """Return why the API server would refuse the Binding of a scheduled pod; empty if it would not.

        Nothing is bound. If a webhook of the cluster supports no such requests, only the Binding itself can tell.
        """
        try:
            await self._fenced.create(_path(pod), self._binding(pod, chosen, {}), dry_run=True)
        except ClusterError as error:
            return "" if _NO_DRY_RUN in str(error) else str(error)
        return ""

    def _binding(self, pod: Pod, chosen: Scheduled, more: Mapping[str, str]) -> dict[str, Any]:
        annotations = {
            **allocation_annotations(chosen, unix_seconds=int(time.time()), delivery=self._delivery_of(chosen.node)),
            **({names.CHARGED_TO: chosen.charged_to} if chosen.charged_to else {}),
            **more,
        }
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": pod.uid,
                "annotations": annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": chosen.node},
        }

    async def _outcome_after(
        self, error: ClusterError, pod: Pod, chosen: Scheduled, *, doubtful_until: float
    ) -> Outcome | None:
        """Return the outcome of a Binding after `error`, or None while it is unknown.

        Until `doubtful_until` an earlier attempt may still be in progress. Afterwards it may have succeeded although
        this one was refused: an API server that has just started refuses requests until it has read the roles.
        """
        if isinstance(error, NotFoundError):
            return Outcome.GONE
        if isinstance(error, ConflictError):
            return await self._read_outcome(pod, chosen)
        if doubtful_until == -math.inf:
            return Outcome.REFUSED
        return None if time.monotonic() < doubtful_until else await self._read_outcome(pod, chosen)

    async def _read_outcome(self, pod: Pod, chosen: Scheduled) -> Outcome | None:
        """Return the outcome by reading the pod, which an earlier attempt may have bound; None if that fails."""
        try:
            now = await self._fenced.api.get(PODS, Pod, name=pod.metadata.name, namespace=pod.metadata.namespace)
        except NotFoundError:
            return Outcome.GONE
        except ClusterError as error:
            log.warning("pod %s could not be read after a refusal: %s", pod, error)
            return None
        if now.uid != pod.uid:
            return Outcome.GONE
        if not now.spec.node_name:
            return Outcome.REFUSED
        ours = record.encode(chosen.allocation) if chosen.allocation else None
        same = now.spec.node_name == chosen.node and now.metadata.annotations.get(names.ALLOCATION) == ours
        return Outcome.BOUND if same else Outcome.TAKEN


def _path(pod: Pod) -> str:
    return PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="binding")


def _kind(error: ClusterError) -> BindError:
    if isinstance(error, ConflictError):
        return "conflict"
    if isinstance(error, NotFoundError):
        return "gone"
    if error.is_doubtful:
        return "unknown"
    return "fenced" if _FENCE in str(error) else "refused"


def allocation_annotations(chosen: Scheduled, *, unix_seconds: int, delivery: Delivery = DEFAULT) -> dict[str, str]:
    """Return the annotations of the pod's allocation on a node with `delivery`; empty for a pod without GPU."""
    if chosen.allocation is None:
        return {}
    return {
        **environment.annotations(
            chosen.allocation,
            delivery,
            visible_as=chosen.visible_as,
            fabric=chosen.fabric,
            isolation=chosen.allocation.isolation,
        ),
        **environment.hami_annotations(
            chosen.allocation, chosen.request, unix_seconds=unix_seconds, instances=chosen.instances
        ),
    }
