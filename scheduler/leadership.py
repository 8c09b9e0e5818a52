"""The fence: the API server itself refuses the Bindings of a scheduler that was deposed.

Who leads writes its token into the one Leadership object; a ValidatingAdmissionPolicy compares it with the token that
every Binding of ours carries. A rule of the object's schema lets the epoch only grow, so a leader that slept through
its own deposition cannot put its token back.
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
"""Of the Lease and of the Leadership object, both in `tranche-system`."""


class DeposedError(Exception):
    """Somebody with a higher epoch leads."""


class _Spec(msgspec.Struct):
    epoch: int = 0
    identity: str = ""


class _Leadership(msgspec.Struct):
    spec: _Spec


class Fence:
    """The Leadership object."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def last_epoch(self) -> int:
        """Answer the epoch that Bindings need now, 0 where nobody has led yet."""
        try:
            return (await self._read()).epoch
        except NotFoundError:
            return 0

    async def raise_for(self, term: Term) -> None:
        """Make the API server refuse everybody but `term`, and check that it is so.

        Raises:
            DeposedError: a higher epoch stands there.
            ClusterError: the object cannot be read or written.
        """
        spec = {"epoch": term.epoch, "identity": term.identity}
        try:
            now = await self._read()
        except NotFoundError:
            metadata = {"name": NAME, "namespace": SYSTEM_NAMESPACE}
            body = {"apiVersion": LEADERSHIPS.api_version, "kind": LEADERSHIPS.kind, "metadata": metadata, "spec": spec}
            try:
                await self._api.create(LEADERSHIPS, body, namespace=SYSTEM_NAMESPACE)
            except ConflictError:
                now = await self._read()
            else:
                log.info("the fence is raised for %s", term.token)
                return
        if (now.epoch, now.identity) == (term.epoch, term.identity):
            return
        if now.epoch >= term.epoch:
            raise DeposedError(f"Leadership {NAME} holds epoch {now.epoch} of {now.identity}, ours is {term.epoch}")
        try:
            await self._api.merge(LEADERSHIPS, {"spec": spec}, name=NAME, namespace=SYSTEM_NAMESPACE)
        except ApiError as error:
            if error.status == 422:
                raise DeposedError(f"Leadership {NAME}: {error.message}") from error
            raise
        log.info("the fence is raised for %s", term.token)

    async def _read(self) -> _Spec:
        return (await self._api.get(LEADERSHIPS, _Leadership, name=NAME, namespace=SYSTEM_NAMESPACE)).spec
