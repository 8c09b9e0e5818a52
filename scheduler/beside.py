"""Which kube-scheduler leads: a replica of ours decides only while it is the one beside it.

Of several pairs of a kube-scheduler and its extender only one decides, and both halves of it must be the same pair:
kube-schedulers elect among themselves by a Lease of theirs, and we follow that.
"""

import logging
import socket

import msgspec

from cluster.api import Api
from cluster.metadata import ObjectMeta
from cluster.reflector import Reflector
from cluster.resource import LEASES
from scheduler.settings import KubeSchedulerSettings

log = logging.getLogger(__name__)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class Beside:
    """Watches the Lease of the kube-schedulers."""

    def __init__(self, api: Api, settings: KubeSchedulerSettings) -> None:
        """Take for ours the kube-scheduler whose identity begins as `settings` say: by default with our host's name."""
        self._prefix = f"{settings.identity or socket.gethostname()}_"
        self._holder = ""
        self._cache = Reflector(
            api,
            LEASES,
            _Lease,
            namespace=settings.lease_namespace,
            selectors={"fieldSelector": f"metadata.name={settings.lease_name}"},
            on_set=self._set,
            on_delete=self._drop,
        )

    def leads(self) -> bool:
        """Whether the kube-scheduler beside us leads."""
        return self._holder.startswith(self._prefix)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._cache.run()

    def _set(self, lease: _Lease, _old: _Lease | None) -> None:
        self._now_led_by(lease.spec.holder_identity or "")

    def _drop(self, _lease: _Lease) -> None:
        self._now_led_by("")

    def _now_led_by(self, holder: str) -> None:
        if holder != self._holder:
            self._holder = holder
            log.info("kube-scheduler %s leads: %s", holder or "(none)", "ours" if self.leads() else "not ours")
