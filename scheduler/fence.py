"""The fence: the API server refuses the Bindings of a scheduler that no longer leads.

The leader writes its token to the Leadership object, and a ValidatingAdmissionPolicy compares it with the token of each
Binding that a scheduler writes. A rule in the schema of the object lets the epoch only grow, so a process that was
suspended while another replica took over cannot restore its own token.
"""

import logging

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.election import Term
from cluster.errors import ApiError, ConflictError, NotFoundError
from cluster.resource import LEADERSHIPS

log = logging.getLogger(__name__)

NAME = "tranche-scheduler"
"""The name of the Lease and of the Leadership object, both in `tranche-system`."""


class DeposedError(Exception):
    """Another replica leads, with a higher epoch."""


class _Spec(msgspec.Struct):
    epoch: int = 0
    identity: str = ""


class _Leadership(msgspec.Struct):
    spec: _Spec


class Fence:
    """Reads and raises the epoch of the Leadership object."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def last_epoch(self) -> int:
        """Return the epoch that Bindings need now, or 0 if no replica has led yet."""
        try:
            return (await self._read()).epoch
        except NotFoundError:
            return 0

    async def raise_for(self, term: Term) -> None:
        """Make the API server refuse the Bindings of all terms but `term`.

        Raises:
            DeposedError: the object has a higher epoch, or the same epoch of another replica.
            ClusterError: the object cannot be read or written.
        """
        spec = {"epoch": term.epoch, "identity": term.identity}
        try:
            current = await self._read()
        except NotFoundError:
            metadata = {"name": NAME, "namespace": SYSTEM_NAMESPACE}
            body = {"apiVersion": LEADERSHIPS.api_version, "kind": LEADERSHIPS.kind, "metadata": metadata, "spec": spec}
            try:
                await self._api.create(LEADERSHIPS, body, namespace=SYSTEM_NAMESPACE)
            except ConflictError:
                current = await self._read()
            else:
                log.info("raised the fence to %s", term.token)
                return
        if (current.epoch, current.identity) == (term.epoch, term.identity):
            return
        if current.epoch >= term.epoch:
            raise DeposedError(
                f"Leadership {NAME} has epoch {current.epoch} of {current.identity}, but this replica has {term.epoch}"
            )
        try:
            await self._api.merge(LEADERSHIPS, {"spec": spec}, name=NAME, namespace=SYSTEM_NAMESPACE)
        except ApiError as error:
            if error.status == 422:
                raise DeposedError(f"Leadership {NAME}: {error.message}") from error
            raise
        log.info("raised the fence to %s", term.token)

    async def _read(self) -> _Spec:
        return (await self._api.get(LEADERSHIPS, _Leadership, name=NAME, namespace=SYSTEM_NAMESPACE)).spec
