"""Admission with local copies of everything in a cluster that it asks: claims, queues, quotas, bindings."""

from collections.abc import Iterator
from typing import Any

from allocation.settings import AllocationSettings
from cluster.api import Api
from cluster.informer import Informer
from webhook.admission import Admission
from webhook.bindings import cluster_bindings
from webhook.claims import ClusterClaims
from webhook.cluster_quotas import ClusterQuotas
from webhook.metrics import Metrics
from webhook.queues import ClusterQueues
from webhook.settings import WebhookSettings


class ClusterAdmission:
    """Admission, and the informers that keep its copies.

    Attributes:
        admission: decides on reviews.
    """

    def __init__(
        self, api: Api, *, allocation: AllocationSettings, settings: WebhookSettings, metrics: Metrics
    ) -> None:
        """Use `api` for the copies; GPUBindings are copied if they count."""
        self._claims, self._queues, self._quotas = ClusterClaims(api), ClusterQueues(api), ClusterQuotas(api)
        self._bindings = cluster_bindings(api, allocation.bindings)
        self.admission = Admission(
            allocation=allocation,
            settings=settings,
            metrics=metrics,
            quotas=self._quotas.of_namespace,
            claims=self._claims,
            memberships=self._queues,
            bindings=self._bindings,
            isolation_of=self._queues.isolation,
        )

    @property
    def informers(self) -> Iterator[Informer[Any]]:
        """The informers; all of them must run."""
        yield from (self._quotas.resource_quotas, self._quotas.gpu_quotas, self._claims.informer)
        yield from (self._queues.queues, self._queues.namespaces)
        if self._bindings is not None:
            yield self._bindings.informer

    async def listed(self) -> None:
        """Wait until the defaults of GpuQuotas are known.

        Admission waits neither for the ResourceQuotas, because a pod that exceeds one is admitted and the scheduler
        holds it, nor for the claims, because one that is missing here is read, nor for the queues and the bindings,
        because the scheduler obeys them in any case.
        """
        await self._quotas.listed()
