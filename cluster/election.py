"""One of several replicas leads, by a Lease.

A replica that does not hold the Lease judges its age by its own clock, from when it saw the Lease change; clocks of
different machines are never compared. A holder that could not renew for `renew_deadline` seconds stops before others
may take over. A paused process may wake up and not know yet that it was deposed: whoever needs certainty fences its
writes with the term's epoch, which only grows.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.metadata import ObjectMeta
from cluster.resource import LEASES

log = logging.getLogger(__name__)


class ElectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a leader is trusted.

    Attributes:
        lease_seconds: others take over when the Lease has not changed for so long.
        renew_deadline_seconds: a leader that could not renew for so long stops; less than `lease_seconds`.
        retry_seconds: pause between tries to renew or to take over.
    """

    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times with which two could lead at once."""
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError(
                f"retry_seconds {self.retry_seconds} < renew_deadline_seconds {self.renew_deadline_seconds} "
                f"< lease_seconds {self.lease_seconds} must hold"
            )


class Term(msgspec.Struct, frozen=True):
    """One time of leading.

    Attributes:
        epoch: grows with every term.
        identity: who leads.
        follows_another: whether somebody led before and did not hand over in order.
    """

    epoch: int
    identity: str
    follows_another: bool

    @property
    def token(self) -> str:
        """What proves the term on a write: `<epoch>/<identity>`."""
        return f"{self.epoch}/{self.identity}"


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Election:
    """Campaigns for one Lease, and renews it while it is held."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        settings: ElectionSettings,
        may_lead: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Campaign only while `may_lead` says so, and give up when it does no longer."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._settings = settings
        self._may_lead = may_lead
        self._clock = clock
        self._seen = ("", 0.0)
        self._renewed_at = float("-inf")
        self._changing = asyncio.Lock()
        self.is_standing_by = False
        """Whether at the last look another was seen to hold it, or we were not to campaign."""

    @property
    def may_lead(self) -> bool:
        """Whether we are to hold the Lease at all."""
        return self._may_lead()

    @property
    def is_trusted(self) -> bool:
        """Whether the Lease was renewed recently enough to go on leading, and is still to be held by us."""
        return self._may_lead() and self._clock() - self._renewed_at < self._settings.renew_deadline_seconds

    async def win(self, *, last_epoch: Callable[[], Awaitable[int]]) -> Term:
        """Wait until the Lease is ours.

        `last_epoch` answers the highest epoch that any writer was fenced with: a Lease that was deleted starts its
        own count anew, the epoch must not.
        """
        while True:
            if not self._may_lead():
                self.is_standing_by = True
                await self._pause()
                continue
            try:
                term = await self._try(last_epoch)
            except ConflictError:
                term = None
            except ClusterError as error:
                log.warning("the Lease %s cannot be read or taken: %s", self._name, error)
                term = None
            if term is not None:
                return term
            await self._pause()

    async def hold(self) -> None:
        """Renew the Lease; returns when it is lost, or when we may lead no longer."""
        while True:
            await self._pause()
            if not self._may_lead():
                log.info("the Lease %s is given up", self._name)
                return
            asked_at = self._clock()
            try:
                async with self._changing:
                    lease = await self._get()
                    if lease.spec.holder_identity != self._identity:
                        log.warning("the Lease %s is held by %s now", self._name, lease.spec.holder_identity)
                        return
                    await self._write({"renewTime": _now()}, version=lease.metadata.resource_version)
                    self._renewed_at = asked_at
            except NotFoundError:
                log.warning("the Lease %s was deleted", self._name)
                return
            except ClusterError as error:
                log.warning("the Lease %s was not renewed: %s", self._name, error)
            if not self.is_trusted:
                return

    async def release(self) -> None:
        """Hand over in order: nothing of ours is under way any more, so the successor need not wait.

        A renewal under way ends first: the API server would refuse one of the two, and a release is not tried again.
        """
        try:
            async with self._changing:
                self._renewed_at = float("-inf")
                lease = await self._get()
                if lease.spec.holder_identity == self._identity:
                    await self._write({"holderIdentity": ""}, version=lease.metadata.resource_version)
        except ClusterError as error:
            log.warning("the Lease %s was not handed over: %s", self._name, error)

    async def _try(self, last_epoch: Callable[[], Awaitable[int]]) -> Term | None:
        asked_at = self._clock()
        try:
            lease = await self._get()
        except NotFoundError:
            lease = None
        self.is_standing_by = bool(lease is not None and lease.spec.holder_identity and not self._is_expired(lease))
        if self.is_standing_by:
            return None
        fenced = await last_epoch()
        transitions = (lease.spec.lease_transitions or 0) if lease is not None else 0
        epoch = max(fenced, transitions) + 1
        spec = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._settings.lease_seconds)),
            "leaseTransitions": epoch,
            "acquireTime": _now(),
            "renewTime": _now(),
        }
        if lease is None:
            await self._create(spec)
        else:
            await self._write(spec, version=lease.metadata.resource_version)
        self._renewed_at = asked_at
        handed_over = lease is not None and not lease.spec.holder_identity
        return Term(epoch, self._identity, follows_another=bool(fenced or transitions) and not handed_over)

    def _is_expired(self, lease: _Lease) -> bool:
        """Whether the Lease has not changed for its whole duration, on our own clock."""
        version, since = self._seen
        if version != lease.metadata.resource_version:
            self._seen = (lease.metadata.resource_version, self._clock())
            return False
        return self._clock() - since >= self._settings.lease_seconds

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.retry_seconds * random.uniform(0.9, 1.1))  # noqa: S311 -- jitter, no secret

    async def _get(self) -> _Lease:
        return await self._api.get(LEASES, _Lease, name=self._name, namespace=self._namespace)

    async def _create(self, spec: dict[str, Any]) -> None:
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}
        await self._api.create(LEASES, body, namespace=self._namespace)

    async def _write(self, spec: dict[str, Any], *, version: str) -> None:
        """Change fields of the Lease, on condition that nobody has changed it since `version`."""
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._api.merge(LEASES, body, name=self._name, namespace=self._namespace)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
