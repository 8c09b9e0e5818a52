"""The GpuQuota object: what the pods of a namespace may have, and a table of the quotas of each namespace."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

import msgspec

from allocation.fairness.quota_spec import QuotaSpec
from cluster.metadata import ObjectMeta


class QuotaMeta(ObjectMeta, rename="camel"):
    """The metadata of a quota."""

    creation_timestamp: str | None = None
    generation: int = 0


class QuotaCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition in a quota's status; `last_transition_time` is when its `status` last changed."""

    type: Literal["Ready", "Valid"]
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str


class GpuQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How much of a quota is used, for people to read.

    Attributes:
        observed_generation: of the spec that this is about.
        used: what the namespace's pods hold, by resource in the units of a container; the limited resources only.
        pods: its pods with a GPU and a node.
        available_percent: what is left of each limit in percent, with two decimals.
        fullest: the resource of which the smallest part is left; empty without limits.
        conditions: `Ready`, False with reason AlertThresholdReached; `Valid`, False with reason UnknownResource.
    """

    observed_generation: int = 0
    used: dict[str, int] = {}
    pods: int = 0
    available_percent: dict[str, str] = {}
    fullest: str = ""
    conditions: tuple[QuotaCondition, ...] = ()


class GpuQuota(msgspec.Struct):
    """A quota. Its status is only for people, and nothing decides by it."""

    metadata: QuotaMeta
    spec: QuotaSpec = QuotaSpec()
    status: GpuQuotaStatus = GpuQuotaStatus()


class NamespaceGpuQuotas:
    """The specs of quotas by namespace and name; `set` and `drop` are callbacks of an Informer."""

    def __init__(self) -> None:
        self._specs: defaultdict[str, dict[str, QuotaSpec]] = defaultdict(dict)

    def set(self, quota: GpuQuota, _old: GpuQuota | None = None) -> None:
        """Add a quota, or replace it."""
        self._specs[quota.metadata.namespace][quota.metadata.name] = quota.spec

    def drop(self, quota: GpuQuota) -> None:
        """Remove a quota; the others of its namespace stay."""
        specs = self._specs[quota.metadata.namespace]
        specs.pop(quota.metadata.name, None)
        if not specs:
            del self._specs[quota.metadata.namespace]

    def specs(self, namespace: str) -> Mapping[str, QuotaSpec]:
        """Return the `spec` of each quota of a namespace, by name."""
        return self._specs.get(namespace, {})
