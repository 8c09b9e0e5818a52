"""The GpuQuotas of the namespaces of manifests, from the cluster."""

import argparse
from collections.abc import Mapping
from typing import Final

from allocation.fairness.quota_spec import QuotaSpec
from cli.errors import CommandError
from cli.kube.session import open_session
from cli.tables import note
from cluster.errors import ClusterError, NotFoundError
from cluster.gpu_quota import GpuQuota
from cluster.resource import GPU_QUOTAS

_SECONDS: Final = 5.0


class GpuQuotas:
    """The quotas of a cluster, which is asked once for each namespace. Without a cluster there are no quotas."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """Take the flags that choose the cluster and the namespace."""
        self._arguments = arguments
        self._specs: dict[str, Mapping[str, QuotaSpec]] = {}

    def of_namespace(self, namespace: str) -> Mapping[str, QuotaSpec]:
        """Return the quotas by name; an empty `namespace` is that of the command line or the kubeconfig."""
        if namespace not in self._specs:
            self._specs[namespace] = self._read(namespace)
        return self._specs[namespace]

    def _read(self, namespace: str) -> Mapping[str, QuotaSpec]:
        try:
            session = open_session(self._arguments, timeout=_SECONDS)
        except CommandError:
            return {}
        namespace = namespace or self._arguments.namespace or session.namespace
        try:
            quotas = session.client.list(GPU_QUOTAS, GpuQuota, namespace=namespace)
        except NotFoundError:
            return {}
        except (CommandError, ClusterError) as error:
            note(
                f"GpuQuotas of namespace {namespace} cannot be read: {error}: their limits and defaults are not applied"
            )
            return {}
        return {quota.metadata.name: quota.spec for quota in quotas}
