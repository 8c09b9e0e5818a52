"""The quotas of a cluster. Only the local copy is asked: the scheduler checks the limits in any case."""

import asyncio
import logging
from typing import Final

from cluster.api import Api
from cluster.gpu_quota import GpuQuota, NamespaceGpuQuotas
from cluster.informer import Informer
from cluster.resource import GPU_QUOTAS, RESOURCE_QUOTAS
from cluster.resource_quota import NamespaceQuotas, ResourceQuota
from webhook.quotas import Quotas

log = logging.getLogger(__name__)

_LIST_SECONDS: Final = 2.0


class ClusterQuotas:
    """The quotas of all namespaces, as far as the local copies have them.

    Attributes:
        resource_quotas: keeps the local copy of the ResourceQuotas; it must run.
        gpu_quotas: keeps that of the GpuQuotas; it must run, too.
    """

    def __init__(self, api: Api) -> None:
        """Use `api` for the copies."""
        self._hards, self._specs = NamespaceQuotas(), NamespaceGpuQuotas()
        self.resource_quotas = Informer(
            api, RESOURCE_QUOTAS, ResourceQuota, on_upsert=self._hards.set, on_delete=self._hards.drop
        )
        self.gpu_quotas = Informer(api, GPU_QUOTAS, GpuQuota, on_upsert=self._specs.set, on_delete=self._specs.drop)

    def of_namespace(self, namespace: str) -> Quotas:
        """Return the quotas of a namespace."""
        return Quotas(self._hards.hards(namespace), self._specs.specs(namespace))

    async def listed(self) -> None:
        """Wait until the GpuQuotas are known, because nothing fills in the defaults of a pod that is admitted before.

        A cluster that does not serve GpuQuotas is not waited for longer than 2 s.
        """
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                await self.gpu_quotas.synced.wait()
        except TimeoutError:
            log.warning("the GpuQuotas are not known yet: until they are, pods get no defaults from them")
