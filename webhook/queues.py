"""The GpuQueues that pods name, and the labels of their namespaces.

Only the local copy is asked: the scheduler decides about queues in any case, and a policy in the API server refuses a
pod that was admitted before the label of its namespace was known here.
"""

from collections.abc import Mapping

import msgspec

from allocation.fairness.queue_spec import QueueSpec
from allocation.names import ISOLATION
from cluster.api import Api
from cluster.gpu_queue import GpuQueue
from cluster.informer import Informer
from cluster.metadata import ObjectMeta
from cluster.resource import GPU_QUEUES, NAMESPACES
from webhook.membership import Membership


class LabelledMeta(ObjectMeta, rename="camel"):
    """The metadata of a namespace with its labels."""

    labels: dict[str, str] = {}


class LabelledNamespace(msgspec.Struct):
    """A namespace, as far as selectors read it."""

    metadata: LabelledMeta


class ClusterQueues:
    """The queues of a cluster, as far as the local copy has them.

    Attributes:
        queues: keeps the local copy of the queues; it must run.
        namespaces: keeps that of the namespaces; it must run, too.
    """

    def __init__(self, api: Api) -> None:
        """Use `api` for the copies."""
        self.queues = Informer(api, GPU_QUEUES, GpuQueue)
        self.namespaces = Informer(api, NAMESPACES, LabelledNamespace)

    def of_pod(self, labels: Mapping[str, str], namespace: str) -> Membership | None:
        """See MembershipLookup."""
        found = self.namespaces.get(namespace)
        of_namespace = found.metadata.labels if found is not None else None
        return Membership.of_labels(labels, namespace, of_namespace=of_namespace, find_queue=self._find)

    def isolation(self, namespace: str) -> str:
        """Return the label of a namespace that says what enforces the limits of its pods; empty without one."""
        found = self.namespaces.get(namespace)
        return found.metadata.labels.get(ISOLATION, "") if found is not None else ""

    def _find(self, name: str) -> QueueSpec | None:
        queue = self.queues.get(name)
        return queue.spec if queue is not None else None
