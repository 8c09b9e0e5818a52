"""Hints for pods that ask for what no card of the cluster has: the models that exist, or the largest card."""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from allocation import names
from allocation.constraints import Constraints
from allocation.ledger.card_table import MEMORY
from allocation.ledger.ledger import Ledger
from allocation.reasons import CardReason
from allocation.request import PodRequest

_NAMED: Final = 10
"""How many models one hint names."""


def of(request: PodRequest, constraints: Constraints, *, ledger: Ledger, reasons: Collection[str]) -> tuple[str, ...]:
    """Return hints for a pod that is unschedulable for `reasons`, given as codes; empty where the codes suffice."""
    hints = []
    if CardReason.CardTypeMismatch.name in reasons:
        hints.append(_types(constraints, ledger))
    if CardReason.CardInsufficientMemory.name in reasons:
        hints += _memory(request, ledger)
    return tuple(hints)


def _types(constraints: Constraints, ledger: Ledger) -> str:
    present = np.flatnonzero(np.bincount(ledger.kinds[ledger.present]))
    kinds = sorted({ledger.kind_names[kind] for kind in present.tolist()})
    accepted = [kind for kind in kinds if constraints.accepts_type(*kind)]
    refused = [kind for kind in kinds if kind not in accepted]
    keys = [
        f'{key} "{value}"'
        for key, value in (
            (names.USE_TYPES, ",".join(constraints.use_types or ())),
            (names.AVOID_TYPES, ",".join(constraints.avoid_types)),
            (names.MODE, constraints.modes or ""),
        )
        if value
    ]
    asked, verb = " and ".join(keys), "accept" if len(keys) > 1 else "accepts"
    with_modes = constraints.modes is not None
    if not accepted:
        return f"{asked} {verb} no model in this cluster, which has {_listed(refused, with_modes=with_modes)}"
    return f"{asked} {verb} {_listed(accepted, with_modes=with_modes)}, not {_listed(refused, with_modes=with_modes)}"


def _listed(kinds: list[tuple[str, str]], *, with_modes: bool) -> str:
    """Return each model once, with its mode if `with_modes`."""
    models = list(
        dict.fromkeys(
            f"{model or 'unnamed'} (mode {mode})" if with_modes else model or "unnamed" for model, mode in kinds
        )
    )
    more = [f"and {len(models) - _NAMED} more"] if len(models) > _NAMED else []
    return ", ".join([*models[:_NAMED], *more]) or "no other"


def _memory(request: PodRequest, ledger: Ledger) -> Iterator[str]:
    total = np.where(ledger.present, ledger.total[MEMORY], 0)
    if not total.size:
        return
    where = np.unravel_index(int(total.argmax()), total.shape)
    largest, (model, _) = int(total[where]), ledger.kind_names[int(ledger.kinds[where])]
    for container in request.gpu_containers:
        if container.memory_mib is not None and container.memory_mib > largest:
            yield (
                f"container {container.name} asks for {container.memory_mib} MiB of one card; the largest card in this"
                f" cluster has {largest} MiB{f' ({model})' if model else ''}"
            )
