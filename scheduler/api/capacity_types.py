"""How many more pods of a shape fit, the largest slice, and what is stranded, as the HTTP API and the CLI show it."""

from typing import Literal

import msgspec

from scheduler.api.json_names import json_name

Obstacle = Literal["compute", "memory", "slots", "pods", "node"]
"""What keeps pods from what is free: the card's compute, its memory or its slots, the most pods that the node may have,
or its CPU or memory."""


class PlaceCount(msgspec.Struct, frozen=True, rename=json_name):
    """How many more pods fit on a node, or on cards of a model: its name, and the number."""

    name: str
    count: int


class ShapeCapacity(msgspec.Struct, frozen=True, rename=json_name):
    """How many more pods of one shape fit now: as many as get a node one after the other, until one gets none.

    Attributes:
        name: of the shape: `whole card`, the size of a slice, or the pod.
        count: how many fit.
        is_exact: whether the next one does not fit; otherwise the count was ended early, and more may fit.
        models: by model of the cards, several models of one pod joined by `, `.
        nodes: by node; none for users with rights in one namespace, because it shows how full nodes are.
        why: why the next one does not fit, or why admission refuses all of them.
        is_limited_by_quota: whether the next one would fit if no quota and no limit of a GpuQueue counted.
        warnings: the warnings that the creator of such a pod would get, and the assumptions of the count.
    """

    name: str
    count: int
    is_exact: bool = True
    models: tuple[PlaceCount, ...] = ()
    nodes: tuple[PlaceCount, ...] = ()
    why: str = ""
    is_limited_by_quota: bool = False
    warnings: tuple[str, ...] = ()


class LargestSlice(msgspec.Struct, frozen=True, rename=json_name):
    """The slice of one card with the most memory that a pod could get now, and with it the most compute.

    Attributes:
        memory_mib: MiB.
        cores: percent of the card, in steps of 1.
        model: of the card.
        node: where it is; empty for users with rights in one namespace.
    """

    memory_mib: int
    cores: int
    model: str
    node: str = ""


class Blame(msgspec.Struct, frozen=True, rename=json_name):
    """Whose pods use up most of what is missing, and how much they strand, as in Stranded.

    Attributes:
        queue: the queue; `namespace/NAME` for a namespace's own, `reserved` if no pod has it.
    """

    queue: str
    cards: float
    memory_mib: int
    cores: int


class Stranded(msgspec.Struct, frozen=True, rename=json_name):
    """What is free and of no use, because something else on the same card or node is used up.

    Attributes:
        lacks: what is used up.
        cards: on how many cards; those that lack CPU or memory of their node are counted as scheduling counts them, in
            fractions of cards (docs/packing.md).
        memory_mib: the free memory of these cards; 0 where the node lacks something.
        cores: their free compute in millicards; 0 likewise.
        by: whose pods use most of it, the most cards first.
    """

    lacks: Obstacle
    cards: float
    memory_mib: int
    cores: int
    by: tuple[Blame, ...] = ()


class CapacityView(msgspec.Struct, frozen=True, rename=json_name):
    """What still fits.

    Attributes:
        shapes: the counts.
        largest: the largest slice for a pod of the first shape; None if nothing fits, or if not only its amounts decide
            which cards it gets, because it has a GpuClaim, bound cards or a static allocation.
        stranded: what is stranded; None for users with rights in one namespace.
    """

    shapes: tuple[ShapeCapacity, ...]
    largest: LargestSlice | None = None
    stranded: tuple[Stranded, ...] | None = None
