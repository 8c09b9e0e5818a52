"""Size limits on the parts of a pod that make it expensive to read, to store or to schedule.

Each limit is many times what real workloads use. The admission policy `tranche-creation` rejects a GPU pod that exceeds
one. If such a pod exists nevertheless, the scheduler holds it and keeps none of its oversized parts in memory.
"""

from collections.abc import Mapping
from typing import Final

from allocation import names

CONTAINERS: Final = 64
"""Regular and init containers of a GPU pod."""

GPU_CONTAINERS: Final = 32
"""Containers of a pod that request a GPU."""

NODE_SELECTOR_LABELS: Final = 32
"""Labels in `spec.nodeSelector`."""

NODE_SELECTOR_TERMS: Final = 32
"""Terms of the required node affinity."""

PREFERRED_NODE_TERMS: Final = 32
"""Terms of the preferred node affinity."""

NODE_EXPRESSIONS: Final = 128
"""Expressions and field selectors of all node affinity terms together, required and preferred."""

POD_AFFINITY_TERMS: Final = 32
"""Required terms of pod affinity and pod anti-affinity together."""

PREFERRED_POD_TERMS: Final = 32
"""Preferred terms of pod affinity and pod anti-affinity together."""

SPREAD_CONSTRAINTS: Final = 16
"""Entries of `spec.topologySpreadConstraints`."""

TOLERATIONS: Final = 64
"""Entries of `spec.tolerations`."""

RESOURCES: Final = 256
"""Entries of `resources` of all containers together; requests that equal their limits count once."""

VOLUMES: Final = 64
"""Entries of `spec.volumes`."""

HOST_PORTS: Final = 64
"""Host ports of all containers together."""

SELECTOR_VALUES: Final = 384
"""Values, labels and namespaces in all selectors of a pod together: node affinity, pod affinity, topology spread."""

SELECTOR_CHARACTERS: Final = 16 * 1024
"""Characters of the keys and values in all selectors of a pod together."""

POD_LABELS: Final = 64
"""Labels of a pod."""

LIST_CHARACTERS: Final = 8 * 1024
"""Characters of all annotations that constrain a pod's cards and nodes together: some 200 UUIDs."""


def excess(subject: str, size: int, unit: str, limit: int) -> str:
    """Return the message for a size beyond its limit, or an empty string.

    Args:
        subject: the field and its verb, such as "spec.volumes has".
        size: how much the field holds.
        unit: what is counted, such as "entries".
        limit: the largest size.
    """
    if size <= limit:
        return ""
    return f"{subject} {size} {unit}, {limit} is the limit for a pod that Tranche schedules: shorten it"


def excess_of_containers(count: int) -> str:
    """Return the message for a pod with too many containers, or an empty string."""
    return excess("spec.containers and spec.initContainers have", count, "entries", CONTAINERS)


def excess_of_gpu_containers(count: int) -> str:
    """Return the message for a pod with too many GPU containers, or an empty string."""
    subject = "spec.containers and spec.initContainers have"
    return excess(subject, count, "entries that ask for a GPU", GPU_CONTAINERS)


def excess_of_annotations(annotations: Mapping[str, str]) -> str:
    """Return the message for a pod whose constraints are too long, or an empty string."""
    keys = annotations.keys() & names.CONSTRAINT_KEYS
    characters = sum(len(annotations[key]) for key in keys)
    if characters <= LIST_CHARACTERS:
        return ""
    return excess(f"annotations {', '.join(sorted(keys))} have", characters, "characters", LIST_CHARACTERS)
