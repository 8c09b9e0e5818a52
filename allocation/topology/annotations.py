"""TensorFusion's annotations on the connections between the cards of a pod (docs/claims.md#without-a-claim).

TensorFusion ignores values that it cannot read. Here an unknown value is an error that names the valid values.
"""

from collections.abc import Collection, Mapping
from typing import Final

from allocation import names
from allocation.errors import invalid_annotation
from allocation.topology.demand import TopologyDemand
from allocation.topology.layout import CROSS_NUMA, LINKED, SAME_NUMA, UNKNOWN, TopologySource

DEFAULT_MAX_TIER: Final = SAME_NUMA
"""TensorFusion's default, for pods that require connections and for others."""
_TIERS: Final = tuple(str(tier) for tier in (LINKED, SAME_NUMA, CROSS_NUMA, UNKNOWN))
_SOURCES: Final[Mapping[str, TopologySource]] = {"auto": "auto", "numa": "numa", "vendor": "auto"}
"""TensorFusion looks at the NUMA nodes of cards without links for `vendor`, too."""


def read_demand(annotations: Mapping[str, str], *, accepts_unknown: bool) -> TopologyDemand | None:
    """Return the demand of a pod with these annotations, or None if it has none of TensorFusion's.

    Raises:
        InvalidFieldError: one of the annotations has an invalid value.
    """
    required = _word(annotations, names.REQUIRE_TOPOLOGY, ("true", "false"))
    tier = _word(annotations, names.TOPOLOGY_MAX_TIER, _TIERS)
    source = _word(annotations, names.TOPOLOGY_SOURCE, _SOURCES)
    if required is tier is source is None:
        return None
    return TopologyDemand(
        mode="Required" if required == "true" else "Preferred",
        max_tier=DEFAULT_MAX_TIER if tier is None else int(tier),
        source=_SOURCES[source or "auto"],
        accepts_unknown=accepts_unknown,
    )


def _word(annotations: Mapping[str, str], key: str, valid: Collection[str]) -> str | None:
    """Return which of the `valid` words an annotation holds; None if it is missing or empty."""
    text = annotations.get(key, "").strip()
    if text and text not in valid:
        raise invalid_annotation(key, text, expected=f"it must be one of {', '.join(valid)}")
    return text or None
