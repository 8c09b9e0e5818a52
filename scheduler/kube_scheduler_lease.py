"""In extender mode, follows the leader election of the kube-schedulers.

Each kube-scheduler runs next to its own extender, and the two leaders must be such a pair. The kube-schedulers elect
their leader with a Lease; a replica of the extender campaigns only while its own kube-scheduler holds that Lease.
"""

import logging
import socket

from cluster.api import Api
from cluster.informer import Informer
from cluster.lease import Lease
from cluster.resource import LEASES
from scheduler.settings import KubeSchedulerSettings

log = logging.getLogger(__name__)


class KubeSchedulerLease:
    """Watches the Lease of the kube-schedulers."""

    def __init__(self, api: Api, settings: KubeSchedulerSettings) -> None:
        """Follow the kube-scheduler whose identity begins with that of `settings`, by default the host name."""
        self._prefix = f"{settings.identity or socket.gethostname()}_"
        self._holder = ""
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

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._informer.run()

    def _set(self, lease: Lease, _old: Lease | None) -> None:
        self._set_holder(lease.spec.holder_identity or "")

    def _drop(self, _lease: Lease) -> None:
        self._set_holder("")

    def _set_holder(self, holder: str) -> None:
        if holder != self._holder:
            self._holder = holder
            whose = "this" if self.leads() else "another"
            log.info("the leading kube-scheduler is %s, of %s replica", holder or "(none)", whose)
