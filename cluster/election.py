"""Leader election among replicas by a Lease.

A replica that does not hold the Lease measures its age by its own clock, from the moment when it saw the Lease change;
clocks of different machines are never compared. A holder that could not renew for `renew_deadline_seconds` stops before
others may take over. A process that was paused may continue without knowing yet that it lost the Lease; writes that
must not happen then are fenced with the epoch of the term, which only grows.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

import msgspec

from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.lease import Lease, LeaseSpec, manifest
from cluster.metadata import micro_time
from cluster.resource import LEASES

log = logging.getLogger(__name__)


class ElectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The timing of elections.

    Attributes:
        lease_seconds: other replicas take over after the Lease has not changed for this time.
        renew_deadline_seconds: a leader stops after it could not renew for this time; less than `lease_seconds`.
        retry_seconds: the pause between attempts to renew or to take over.
    """

    lease_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        """Reject timings with which two replicas could lead at once."""
        if not 0 < self.retry_seconds < self.renew_deadline_seconds < self.lease_seconds:
            raise ValueError(
                f"retry_seconds {self.retry_seconds} < renew_deadline_seconds {self.renew_deadline_seconds} "
                f"< lease_seconds {self.lease_seconds} must hold"
            )


class Term(msgspec.Struct, frozen=True):
    """A period of leadership.

    Attributes:
        epoch: a number that grows with every term.
        identity: the leader.
        follows_another: whether there was a previous leader that did not release the Lease.
    """

    epoch: int
    identity: str
    follows_another: bool

    @property
    def token(self) -> str:
        """The token that marks a write as one of this term: `<epoch>/<identity>`."""
        return f"{self.epoch}/{self.identity}"


class Election:
    """Acquires one Lease, and renews it while holding it."""

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
        """Campaign only while `may_lead` returns True, and give up the Lease when it no longer does."""
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._settings = settings
        self._may_lead = may_lead
        self._clock = clock
        self._last_change = ("", 0.0)
        self._renewed_at = float("-inf")
        self._changing = asyncio.Lock()
        self.is_standing_by = False
        """Whether another replica held the Lease at the last reading, or this one may not campaign."""
        self.holder = ""
        """The identity of the replica that held the Lease at the last reading."""

    @property
    def may_lead(self) -> bool:
        """Whether this replica may hold the Lease."""
        return self._may_lead()

    @property
    def is_trusted(self) -> bool:
        """Whether this replica may hold the Lease, and renewed it recently enough to lead.

        Once it is not, it is not again before it wins another term.
        """
        return self._may_lead() and self._clock() - self._renewed_at < self._settings.renew_deadline_seconds

    async def win(self, *, last_epoch: Callable[[], Awaitable[int]]) -> Term:
        """Wait until this replica holds the Lease, and return its term.

        `last_epoch` returns the highest epoch with which any write was fenced. The transitions of a deleted Lease
        start at 0 again, but the epoch must keep growing.
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
        """Renew the Lease until it is lost, is renewed too late, or this replica may no longer lead."""
        while True:
            await self._pause()
            if not self._may_lead():
                log.info("the Lease %s is given up", self._name)
                return
            requested_at = self._clock()
            try:
                async with self._changing:
                    lease = await self._get()
                    if lease.spec.holder_identity != self._identity:
                        log.warning("the Lease %s is held by %s now", self._name, lease.spec.holder_identity)
                        return
                    await self._write(LeaseSpec(renew_time=_now()), version=lease.metadata.resource_version)
                    if self.is_trusted:
                        self._renewed_at = requested_at
            except NotFoundError:
                log.warning("the Lease %s was deleted", self._name)
                return
            except ClusterError as error:
                log.warning("the Lease %s was not renewed: %s", self._name, error)
            # What found this out in between has ended for good, so a late renewal does not bring the trust back.
            if not self.is_trusted:
                log.warning("the Lease %s was not renewed in time", self._name)
                return

    async def release(self) -> None:
        """Release the Lease, so that the successor need not wait; no write of this term may be in progress.

        A renewal in progress ends first: the API server would refuse one of the two, and a release is not retried.
        """
        try:
            async with self._changing:
                self._renewed_at = float("-inf")
                lease = await self._get()
                if lease.spec.holder_identity == self._identity:
                    await self._write(LeaseSpec(holder_identity=""), version=lease.metadata.resource_version)
        except ClusterError as error:
            log.warning("the Lease %s was not handed over: %s", self._name, error)

    async def _try(self, last_epoch: Callable[[], Awaitable[int]]) -> Term | None:
        requested_at = self._clock()
        try:
            lease = await self._get()
        except NotFoundError:
            lease = None
        self.is_standing_by = bool(lease is not None and lease.spec.holder_identity and not self._is_expired(lease))
        self.holder = lease.spec.holder_identity or "" if lease is not None else ""
        if self.is_standing_by:
            return None
        fenced = await last_epoch()
        transitions = (lease.spec.lease_transitions or 0) if lease is not None else 0
        epoch = max(fenced, transitions) + 1
        now = _now()
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=max(1, round(self._settings.lease_seconds)),
            lease_transitions=epoch,
            acquire_time=now,
            renew_time=now,
        )
        if lease is None:
            await self._create(spec)
        else:
            await self._write(spec, version=lease.metadata.resource_version)
        self._renewed_at, self.holder = requested_at, self._identity
        handed_over = lease is not None and not lease.spec.holder_identity
        return Term(epoch, self._identity, follows_another=bool(fenced or transitions) and not handed_over)

    def _is_expired(self, lease: Lease) -> bool:
        """Whether the Lease has not changed for its whole duration by the clock of this process."""
        version, since = self._last_change
        if version != lease.metadata.resource_version:
            self._last_change = (lease.metadata.resource_version, self._clock())
            return False
        return self._clock() - since >= self._settings.lease_seconds

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.retry_seconds * random.uniform(0.9, 1.1))  # noqa: S311 -- jitter, no secret

    async def _get(self) -> Lease:
        return await self._api.get(LEASES, Lease, name=self._name, namespace=self._namespace)

    async def _create(self, spec: LeaseSpec) -> None:
        body = manifest(self._name, namespace=self._namespace, spec=spec)
        await self._api.create(LEASES, body, namespace=self._namespace)

    async def _write(self, spec: LeaseSpec, *, version: str) -> None:
        """Change fields of the Lease, on condition that it still has the resourceVersion `version`."""
        body = {"metadata": {"resourceVersion": version}, "spec": spec}
        await self._api.merge(LEASES, body, name=self._name, namespace=self._namespace)


def _now() -> str:
    return micro_time(time.time())
