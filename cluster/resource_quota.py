"""The ResourceQuota object, and a table of the quotas of each namespace."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from cluster.metadata import ObjectMeta


class _Spec(msgspec.Struct):
    hard: dict[str, str] = {}


class ResourceQuota(msgspec.Struct):
    """A ResourceQuota. Only `limits.` keys of GPU resources count here; Kubernetes enforces the others."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class NamespaceQuotas:
    """The quotas by namespace and name; `set` and `drop` are callbacks of an Informer."""

    def __init__(self) -> None:
        self._hards: defaultdict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)

    def set(self, quota: ResourceQuota, _old: ResourceQuota | None = None) -> None:
        """Add a quota, or replace it."""
        self._hards[quota.metadata.namespace][quota.metadata.name] = quota.spec.hard

    def drop(self, quota: ResourceQuota) -> None:
        """Remove a quota; the others of its namespace stay."""
        hards = self._hards[quota.metadata.namespace]
        hards.pop(quota.metadata.name, None)
        if not hards:
            del self._hards[quota.metadata.namespace]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the namespaces with quotas."""
        return iter(tuple(self._hards))

    def hards(self, namespace: str) -> Mapping[str, Mapping[str, str]]:
        """Return the `spec.hard` of each quota of a namespace, by name."""
        return self._hards.get(namespace, {})
