"""How the pods of applications share a card: annotations of its node, one for each card."""

from collections.abc import Mapping
from typing import Literal

from allocation.names import SHARE_MODE_PREFIX

ShareMode = Literal["exclusive", "memory-slicing", "time-slicing"]

_MODES: Mapping[str, ShareMode] = {"0": "exclusive", "1": "memory-slicing", "2": "time-slicing"}


def read(annotations: Mapping[str, str]) -> dict[str, ShareMode]:
    """Return the share mode of each card that the annotations of a node name; an unknown value means time slicing."""
    return {
        key.removeprefix(SHARE_MODE_PREFIX): _MODES.get(value, "time-slicing")
        for key, value in annotations.items()
        if key.startswith(SHARE_MODE_PREFIX)
    }
