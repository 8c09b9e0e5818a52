"""Follows the leader election of the kube-schedulers that run next to this process.

Each kube-scheduler runs next to its own extender, and the two leaders must be such a pair. The kube-schedulers elect
their leader with a Lease. In extender mode a replica campaigns only while its own kube-scheduler holds that Lease.
Where the loop hands pods over, a replica also leads while no kube-scheduler runs, because the loop needs none.
"""

import logging
import socket
import time
from collections.abc import Callable

from cluster.api import Api
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import LEASES
from scheduler.settings import KubeSchedulerSettings

log = logging.getLogger(__name__)


class KubeSchedulerLease:
    """Watches the Lease of the kube-schedulers.

    Attributes:
        name: its namespace and name.
        silence: the seconds without a renewal after which no kube-scheduler runs.
    """

    def __init__(
        self, api: Api, settings: KubeSchedulerSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Follow the kube-scheduler whose identity begins with that of `settings`, by default the host name."""
        self._prefix = f"{settings.identity or socket.gethostname()}_"
        self.name = f"{settings.lease_namespace}/{settings.lease_name}"
        self.silence = settings.silent_seconds
        self._clock = clock
        self._holder = ""
        self._renewed_at = clock()
        self._informer = Informer(
            api,
            LEASES,
            Lease,
            namespace=settings.lease_namespace,
            selectors={"fieldSelector": f"metadata.name={settings.lease_name}"},
            on_upsert=self._set,
            on_delete=self._drop,
        )

    def leads(self) -> bool:
        """Whether the kube-scheduler of this replica leads."""
        return self._holder.startswith(self._prefix)

    def lets_loop_lead(self) -> bool:
        """Whether this replica may lead with its loop: not next to a kube-scheduler of which another one leads."""
        is_free = self._informer.synced.is_set() and not self._holder
        return self.leads() or is_free or self.is_silent

    @property
    def is_silent(self) -> bool:
        """Whether no kube-scheduler runs: none has renewed the Lease for too long, by the clock of this process."""
        return self._clock() - self._renewed_at >= self.silence

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    def _set(self, lease: Lease, old: Lease | None) -> None:
        if old is not None and lease.spec != old.spec:
            self._renewed_at = self._clock()
        self._set_holder(lease.spec.holder_identity or "")

    def _drop(self, _lease: Lease) -> None:
        self._set_holder("")

    def _set_holder(self, holder: str) -> None:
        if holder != self._holder:
            self._holder = holder
            whose = "this" if self.leads() else "another"
            log.info("the leading kube-scheduler is %s, of %s replica", holder or "(none)", whose)
