"""Changes an object only as it was read, so that no change by anybody else is ever overwritten."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from cluster.api import MERGE_PATCH
from cluster.backoff import write_backoff
from cluster.errors import ClusterError, ConflictError
from cluster.informer import HasMeta
from cluster.resource import Resource
from scheduler.fenced_api import FencedApi

log = logging.getLogger(__name__)

O = TypeVar("O", bound=HasMeta)  # noqa: E741 -- O for object


async def patch(
    fenced: FencedApi,
    resource: Resource,
    known: O,
    change: Callable[[O], Mapping[str, Any] | None],
    *,
    read_first: bool = False,
) -> O:
    """Change an object from its `known` state, and return it as it is then.

    `change` returns a merge patch for the state that it is given, or None if that state needs none; what it raises ends
    the attempt. It is called again with the object as the API server shows it after a conflict, and after a response
    that was lost. A repeated write is harmless: only the first that arrives finds the resourceVersion that it names.
    With `read_first` the known state is only a name, and the API server is asked before anything is written.

    Raises:
        NotFoundError: the object does not exist.
        ApiError: the API server refuses the change.
    """
    backoff = write_backoff()
    kind, name, namespace = type(known), known.metadata.name, known.metadata.namespace
    current = None if read_first else known
    while True:
        try:
            if current is None:
                current = await fenced.api.get(resource, kind, name=name, namespace=namespace)
            body = change(current)
            if body is None:
                return current
            path, body = resource.path(namespace=namespace, name=name), _conditional(body, current)
            written = await fenced.write("PATCH", path, body, content_type=MERGE_PATCH)
            return msgspec.json.decode(written, type=kind)
        except ConflictError:
            current = None
        except ClusterError as error:
            if not error.is_doubtful:
                raise
            log.warning("%s %s: its state is unknown, trying again: %s", resource.kind, name, error)
            current = None
            await asyncio.sleep(backoff.next())


def _conditional(body: Mapping[str, Any], current: HasMeta) -> dict[str, Any]:
    """Return a merge patch that applies to this version of this object only."""
    precondition = {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version}
    return {**body, "metadata": {**body.get("metadata", {}), **precondition}}
