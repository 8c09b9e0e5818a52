"""One write binds and allocates: a Binding whose annotations are the allocation and the environment.

The API server merges those annotations onto the pod in the same update that sets its node, with the pod's UID as
precondition (testbed.md, fact 1). So no state exists in which a pod has a node without its allocation, and a lost
answer is cured by asking again: the same Binding is repeated until its outcome is known, and as long as it is not,
the share stays reserved, because the first request may still be under way.
"""

import asyncio
import enum
import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from allocation import environment, names, record
from cluster.api import Api
from cluster.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from cluster.resource import PODS
from scheduler.cycle import Chosen
from scheduler.objects import Pod

log = logging.getLogger(__name__)

_FENCE: Final = "'tranche-fence'"
"""As the API server names the policy that refused (manifests/base/fence.yaml)."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0


Trouble = Literal["conflict", "gone", "unknown", "fenced", "refused"]


class Outcome(enum.Enum):
    """How a Binding ended."""

    BOUND = "bound"
    GONE = "gone"
    """The pod is deleted, or another one has its name."""
    TAKEN = "taken"
    """Somebody else bound it."""
    REFUSED = "refused"
    """The API server will not have this Binding."""


class Result(msgspec.Struct, frozen=True):
    """An outcome and, where it is not `BOUND`, what the API server said."""

    outcome: Outcome
    note: str = ""


class Binder:
    """Writes Bindings."""

    def __init__(
        self,
        api: Api,
        *,
        token: str,
        timeout_seconds: float,
        on_trouble: Callable[[Trouble], object] = lambda _: None,
    ) -> None:
        """Bind with the leader's `token`; the API server gives up a request after `timeout_seconds`.

        `on_trouble` is told of each answer that is not the expected one.
        """
        self._api = api
        self._on_trouble = on_trouble
        self._token = token
        self._timeout = timeout_seconds

    async def bind(self, pod: Pod, chosen: Chosen, *, more: Mapping[str, str] = MappingProxyType({})) -> Result:
        """Write the Binding of a decision, with `more` annotations; returns once its outcome is known."""
        annotations = {
            names.LEADER: self._token,
            **allocation_annotations(chosen, unix_seconds=int(time.time())),
            **more,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": pod.metadata.name,
                "namespace": pod.metadata.namespace,
                "uid": pod.uid,
                "annotations": annotations,
                "labels": {names.FENCED_LABEL: "true"},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": chosen.node},
        }
        path = PODS.path(namespace=pod.metadata.namespace, name=pod.metadata.name, subresource="binding")
        params = {"timeout": f"{self._timeout:g}s"}
        pause = _FIRST_PAUSE
        doubtful_until = -math.inf
        while True:
            try:
                # Our own patience is longer than the server's, so that its answer is not missed by a moment.
                await self._api.request("POST", path, params=params, body=body, timeout=self._timeout + 2)
            except ApiError as error:
                if error.status >= 500:
                    doubtful_until = time.monotonic() + self._timeout
                self._on_trouble(_trouble(error))
                outcome, note = await self._judge(error, pod, chosen, doubtful_until=doubtful_until), str(error)
            except UnreachableError as error:
                doubtful_until = time.monotonic() + self._timeout
                self._on_trouble("unknown")
                outcome, note = None, str(error)
            else:
                return Result(Outcome.BOUND)
            if outcome is not None:
                return Result(outcome, note)
            log.warning("pod %s: the outcome of its Binding is unknown, asking again: %s", pod, note)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 -- jitter, no secret
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _judge(self, error: ApiError, pod: Pod, chosen: Chosen, *, doubtful_until: float) -> Outcome | None:
        """Answer what a refusal means for the Binding, None where that is unknown.

        Until `doubtful_until` an earlier try may still be under way, and afterwards it may have been taken, whatever is
        said of this one: an API server that has just started refuses what it has not read the roles for.
        """
        if isinstance(error, NotFoundError):
            return Outcome.GONE
        if isinstance(error, ConflictError):
            return await self._look(pod, chosen)
        if error.status < 500 and doubtful_until == -math.inf:
            return Outcome.REFUSED
        return None if time.monotonic() < doubtful_until else await self._look(pod, chosen)

    async def _look(self, pod: Pod, chosen: Chosen) -> Outcome | None:
        """Read a pod whose Binding was refused: was it an earlier try of ours? None where that is unknown."""
        try:
            now = await self._api.get(PODS, Pod, name=pod.metadata.name, namespace=pod.metadata.namespace)
        except NotFoundError:
            return Outcome.GONE
        except (ApiError, UnreachableError) as error:
            log.warning("pod %s could not be read after a refusal: %s", pod, error)
            return None
        if now.uid != pod.uid:
            return Outcome.GONE
        if not now.spec.node_name:
            return Outcome.REFUSED
        ours = record.encode(chosen.allocation) if chosen.allocation else None
        same = now.spec.node_name == chosen.node and now.metadata.annotations.get(names.ALLOCATION) == ours
        return Outcome.BOUND if same else Outcome.TAKEN


def _trouble(error: ApiError) -> Trouble:
    if isinstance(error, ConflictError):
        return "conflict"
    if isinstance(error, NotFoundError):
        return "gone"
    if error.status >= 500:
        return "unknown"
    return "fenced" if _FENCE in error.message else "refused"


def allocation_annotations(chosen: Chosen, *, unix_seconds: int) -> dict[str, str]:
    """Answer what the pod was given, as annotations; none for a pod without GPU."""
    if chosen.allocation is None:
        return {}
    return {
        **environment.annotations(chosen.allocation),
        **environment.hami_annotations(
            chosen.allocation, chosen.request, unix_seconds=unix_seconds, instances=chosen.instances
        ),
    }
