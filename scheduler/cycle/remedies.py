"""Hints for pods that ask for what no card of the cluster has: the models that exist, or the largest card."""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from allocation import names
from allocation.constraints import Constraints
from allocation.ledger.card_table import MEMORY, TFLOPS
from allocation.ledger.ledger import Ledger
from allocation.reasons import CardReason
from allocation.request import MILLI_PER_TFLOP, ContainerRequest, PodRequest

_NAMED: Final = 10
"""How many models one hint names."""
_NO_INSTANCES: Final = f"a pod with {names.LIMITS} gets no MIG instance, whose size is fixed"
_OF_KINDS: Final = frozenset({CardReason.ModeNotFit.name, CardReason.CardTypeMismatch.name})


def of(request: PodRequest, constraints: Constraints, *, ledger: Ledger, reasons: Collection[str]) -> tuple[str, ...]:
    """Return hints for a pod that is unschedulable for `reasons`, given as codes; empty where the codes suffice."""
    hints = [*_count(request, constraints, ledger)]
    if CardReason.CardTypeMismatch.name in reasons and _keys(constraints):
        hints.append(_types(constraints, ledger))
    if CardReason.CardInsufficientMemory.name in reasons:
        hints += _memory(request, constraints, ledger)
    if CardReason.CardInsufficientTflops.name in reasons:
        hints += _tflops(request, constraints, ledger)
    if CardReason.ExclusiveDeviceAllocateConflict.name in reasons and any(each.whole for each in request.containers):
        hints.append("an Exclusive GpuClaim gets only cards that no pod uses")
    if CardReason.CardModeLocked.name in reasons:
        hints.append(
            f"the pod has isolation {request.isolation}, and pods of different isolations share no card"
            " (allocation.isolation_policy is dynamic)"
        )
    if constraints.card_kind != "any" and not _OF_KINDS.isdisjoint(reasons):
        hints.append(_NO_INSTANCES if request.is_bursting else _kind(constraints))
    return tuple(hints)


def _count(request: PodRequest, constraints: Constraints, ledger: Ledger) -> Iterator[str]:
    """Iterate over hints for containers that ask for more cards than any node has."""
    counts = ledger.present.sum(axis=1)
    if not counts.size:
        return
    row = int(counts.argmax())
    largest = int(counts[row])
    for container in request.gpu_containers:
        if container.count > largest > 0:
            yield (
                f"{_asker(container, constraints)} asks for {container.count} cards of one node; the largest node"
                f" in this cluster is {ledger.node(row)} with {largest}"
            )


def _asker(container: ContainerRequest, constraints: Constraints) -> str:
    """Return what says the amounts: only claims and limits above requests accept one kind of cards."""
    of_pod = constraints.card_kind == "any" or container.memory_limit_mib or container.cores_limit
    return f"container {container.name}" if of_pod else "the GpuClaim"


def _types(constraints: Constraints, ledger: Ledger) -> str:
    present = np.flatnonzero(np.bincount(ledger.kinds[ledger.present]))
    kinds = sorted({ledger.kind_names[kind] for kind in present.tolist()})
    accepted = [kind for kind in kinds if constraints.accepts_type(*kind)]
    refused = [kind for kind in kinds if kind not in accepted]
    keys = _keys(constraints)
    asked, verb = " and ".join(keys), "accept" if len(keys) > 1 else "accepts"
    with_modes = constraints.modes is not None
    if not accepted:
        return f"{asked} {verb} no model in this cluster, which has {_listed(refused, with_modes=with_modes)}"
    return f"{asked} {verb} {_listed(accepted, with_modes=with_modes)}, not {_listed(refused, with_modes=with_modes)}"


def _keys(constraints: Constraints) -> list[str]:
    """Return the annotations that choose models, with their values."""
    values = {
        names.USE_TYPES: ",".join(constraints.use_types or ()),
        names.AVOID_TYPES: ",".join(constraints.avoid_types),
        names.MODE: constraints.modes or "",
    }
    return [f'{key} "{value}"' for key, value in values.items() if value]


def _kind(constraints: Constraints) -> str:
    if constraints.card_kind == "card":
        return "an Exclusive or Shared GpuClaim gets no card in MIG mode"
    of_profile = f" of profile {constraints.profile}" if constraints.profile else ""
    return f"a MIG GpuClaim gets only MIG instances{of_profile}"


def _listed(kinds: list[tuple[str, str]], *, with_modes: bool) -> str:
    """Return each model once, with its mode if `with_modes`."""
    models = list(
        dict.fromkeys(
            f"{model or 'unnamed'} (mode {mode})" if with_modes else model or "unnamed" for model, mode in kinds
        )
    )
    more = [f"and {len(models) - _NAMED} more"] if len(models) > _NAMED else []
    return ", ".join([*models[:_NAMED], *more]) or "no other"


def _memory(request: PodRequest, constraints: Constraints, ledger: Ledger) -> Iterator[str]:
    total = np.where(ledger.present, ledger.total[MEMORY], 0)
    if not total.size:
        return
    where = np.unravel_index(int(total.argmax()), total.shape)
    largest, (model, _) = int(total[where]), ledger.kind_names[int(ledger.kinds[where])]
    for container in request.gpu_containers:
        if container.memory_mib is not None and container.memory_mib > largest:
            yield (
                f"{_asker(container, constraints)} asks for {container.memory_mib} MiB of one card; the largest"
                f" card in this cluster has {largest} MiB{f' ({model})' if model else ''}"
            )


def _tflops(request: PodRequest, constraints: Constraints, ledger: Ledger) -> Iterator[str]:
    total = np.where(ledger.present, ledger.total[TFLOPS], 0)
    if not total.size:
        return
    largest = int(total.max())
    for container in request.gpu_containers:
        if container.tflops > largest:
            asked = f"asks for {container.tflops // MILLI_PER_TFLOP} TFLOPs of one card"
            yield (
                f"{_asker(container, constraints)} {asked}; the fastest card in this cluster has"
                f" {largest // MILLI_PER_TFLOP}"
            )
    unknown = np.unique(ledger.kinds[ledger.present & (ledger.total[TFLOPS] == 0)]).tolist()
    if unknown:
        listed = _listed([ledger.kind_names[kind] for kind in unknown], with_modes=False)
        yield f"the TFLOPs of {listed} are not known: set allocation.models in the configuration"
