"""The GpuQueues that the pods of manifests name, from the cluster."""

import argparse
from collections.abc import Mapping
from typing import Final

from allocation import names
from allocation.fairness.queue_spec import QueueSpec
from cli.errors import CommandError
from cli.kube.session import open_session
from cli.tables import note
from cluster.errors import ClusterError, NotFoundError
from cluster.gpu_queue import GpuQueue
from cluster.resource import GPU_QUEUES
from webhook.membership import Membership

_SECONDS: Final = 5.0


class GpuQueues:
    """The queues of a cluster, which is asked only if a pod names one."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster."""
        self._arguments = arguments
        self._unasked: set[str] = set()

    def membership(self, labels: Mapping[str, str], namespace: str) -> Membership | None:
        """Return the queue that a pod names by its own labels; None if it names none, or the cluster cannot be asked.

        Whether the queue is for the namespace is not checked: manifests are applied to any.
        """
        name = labels.get(names.QUEUE)
        if not name or name in self._unasked:
            return None
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
            queue: QueueSpec | None = session.client.get(GPU_QUEUES, GpuQueue, name=name).spec
        except NotFoundError:
            queue = None
        except (CommandError, ClusterError) as error:
            self._unasked.add(name)
            note(f"GpuQueue {name} cannot be read: {error}: pods that request no resources are not changed by it")
            return None
        return Membership.of_labels(labels, namespace, of_namespace=None, find_queue={name: queue}.get)
