"""The ResourceQuota object, and the quotas of each namespace as a cache fills them."""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from cluster.metadata import ObjectMeta


class _Spec(msgspec.Struct):
    hard: dict[str, str] = {}


class ResourceQuota(msgspec.Struct):
    """A ResourceQuota, of which only `limits.` keys of our resources count here; the rest is Kubernetes' own."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class NamespaceQuotas:
    """What the quotas of every namespace say, by namespace and name; `set` and `drop` are a Reflector's callbacks."""

    def __init__(self) -> None:
        self._hards: defaultdict[str, dict[str, Mapping[str, str]]] = defaultdict(dict)

    def set(self, quota: ResourceQuota, _old: ResourceQuota | None = None) -> None:
        """Take a quota's present state."""
        self._hards[quota.metadata.namespace][quota.metadata.name] = quota.spec.hard

    def drop(self, quota: ResourceQuota) -> None:
        """Forget a quota; the others of its namespace go on."""
        hards = self._hards[quota.metadata.namespace]
        hards.pop(quota.metadata.name, None)
        if not hards:
            del self._hards[quota.metadata.namespace]

    def hards(self, namespace: str) -> Mapping[str, Mapping[str, str]]:
        """Answer the `spec.hard` of a namespace's quotas by their names."""
        return self._hards.get(namespace, {})
