"""The text of `kubectl gpu capacity`: the counts, the largest slice, and what is stranded."""

from collections.abc import Iterator, Sequence
from typing import Final

from cli.capacity.answer import Capacity
from cli.tables import NOTHING, Table, listed
from scheduler.api.capacity_types import CapacityView, PlaceCount, ShapeCapacity, Stranded

_SHOWN: Final = 3
_LACKS: Final = {
    "compute": "no compute left on the card",
    "memory": "no memory left on the card",
    "slots": "no slot left on the card",
    "pods": "as many pods on the node as it may have",
    "node": "too little CPU or memory on the node",
}


def text(found: Capacity, *, wide: bool, headers: bool, explains: bool) -> str:
    """Return the whole text; `explains` why no more pods fit, also where no quota is the reason."""
    parts = [_counts(found, wide=wide).text(headers=headers, wide=wide)]
    lines = [*_reasons(found, explains=explains), *_largest(found.now)]
    if lines:
        parts.append("".join(f"{line}\n" for line in lines))
    if found.now.stranded:
        parts.append(_stranded(found.now.stranded).text(headers=headers, wide=wide))
    return "\n".join(parts)


def _counts(found: Capacity, *, wide: bool) -> Table:
    headers = ["SHAPE", "FITS", *(["WITH NODES"] if found.with_nodes is not None else []), "MODELS", "NODES"]
    later: Sequence[ShapeCapacity | None] = (
        found.with_nodes.shapes if found.with_nodes is not None else [None] * len(found.now.shapes)
    )
    rows = []
    for shape, then in zip(found.now.shapes, later, strict=True):
        shown = then or shape
        counts = [_count(shape), *([_count(then)] if then is not None else [])]
        rows.append([shape.name, *counts, _places(shown.models, wide=wide), _places(shown.nodes, wide=wide)])
    return Table(headers, rows, whole=("SHAPE", "FITS"))


def _count(shape: ShapeCapacity) -> str:
    return str(shape.count) if shape.is_exact else f"at least {shape.count}"


def _places(places: Sequence[PlaceCount], *, wide: bool) -> str:
    texts = [f"{each.name or 'unknown'}={each.count}" for each in places]
    return listed(texts, shown=None if wide else _SHOWN)


def _reasons(found: Capacity, *, explains: bool) -> Iterator[str]:
    """Yield why counts ended: by a quota, before the cards were full, or whatever the reason is."""
    for shape in (found.with_nodes or found.now).shapes:
        if shape.is_limited_by_quota:
            yield f"{shape.name}: a quota ends the count, the cards would take more: {shape.why}"
        elif shape.why and (explains or not shape.count):
            yield f"{shape.name}: {'no more fit' if shape.count else 'none fits'}: {shape.why}"


def _largest(view: CapacityView) -> Iterator[str]:
    largest = view.largest
    if largest is not None:
        where = f" on node {largest.node}" if largest.node else ""
        model = f" of {largest.model}" if largest.model else ""
        yield f"largest slice: {largest.memory_mib} MiB and {largest.cores} % of the compute{model}{where}"


def _stranded(stranded: Sequence[Stranded]) -> Table:
    rows = [
        [
            _LACKS[each.lacks],
            f"{each.cards:g}",
            f"{each.memory_mib} MiB" if each.memory_mib else NOTHING,
            f"{each.cores // 10} %" if each.cores else NOTHING,
            listed([f"{by.queue}={by.cards:g}" for by in each.by], shown=_SHOWN),
        ]
        for each in stranded
    ]
    return Table(["STRANDED", "CARDS", "FREE MEMORY", "FREE COMPUTE", "BY"], rows, whole=("STRANDED",))
