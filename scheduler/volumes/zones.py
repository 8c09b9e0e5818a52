"""The zones and regions of a PersistentVolume, by its labels."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_BETA: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The old names of the labels, and their names today."""
_KEYS: Final = (*_BETA, *_BETA.values())
_SEPARATOR: Final = "__"


class Zones(msgspec.Struct, frozen=True):
    """The values of one label that a node may have."""

    key: str
    values: tuple[str, ...]


def of_labels(labels: Mapping[str, str]) -> tuple[Zones, ...]:
    """Return the zones and regions that a volume's labels name; a label with an empty zone in its list is ignored."""
    found = []
    for key in _KEYS:
        if key in labels:
            values = sorted({each.strip() for each in labels[key].split(_SEPARATOR)})
            if all(values):
                found.append(Zones(key, tuple(values)))
    return tuple(found)


def match(zones: Sequence[Zones], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is in all `zones`; a node without any such label is in every zone."""
    if not any(key in labels for key in _KEYS):
        return True
    return all(labels.get(each.key, labels.get(_BETA.get(each.key, ""))) in each.values for each in zones)
