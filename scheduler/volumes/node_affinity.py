"""The nodes that can use a PersistentVolume, by its node affinity."""

from collections.abc import Callable, Container, Mapping

import msgspec

from scheduler import selectors
from scheduler.pod_spec.constraints import NodeSelector
from scheduler.volumes import in_tree, label_index
from scheduler.volumes.label_index import Labels
from scheduler.volumes.objects import PersistentVolume

_Matcher = Callable[[Mapping[str, str]], bool]


class VolumeAffinity(msgspec.Struct, frozen=True):
    """The node affinity of a volume, compiled once for many nodes.

    Attributes:
        key: equal for equal affinities, and different for all others.
        labels: labels of which each node that matches has one; None if they do not tell.
    """

    key: bytes
    labels: Labels | None
    _matches: _Matcher | None
    _plugin: str
    _matches_migrated: _Matcher | None

    def matches(self, labels: Mapping[str, str], migrated: Container[str]) -> bool:
        """Whether a node with these labels, which has migrated these in-tree plugins, can use the volume."""
        matches = self._matches_migrated if self._plugin and self._plugin in migrated else self._matches
        return matches is None or matches(labels)


def compiled(volume: PersistentVolume) -> VolumeAffinity | None:
    """Return the affinity of `volume`, or None if every node can use it."""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    plugin, migrated = in_tree.translated(volume) or ("", None)
    if required is None and migrated is None:
        return None
    labels = label_index.of_selector(required) if required is not None and not plugin else None
    key = msgspec.msgpack.encode((required, plugin, migrated))
    return VolumeAffinity(key, labels, _matcher(required), plugin, _matcher(migrated))


def _matcher(selector: NodeSelector | None) -> _Matcher | None:
    return selectors.label_matcher(selector) if selector is not None else None
