"""Gangs: pods that get nodes together or not at all, declared by what people already write.

A pod belongs to one gang at most, of its own namespace. The first of these that names a gang counts: the `gangRef` of
its GpuClaim; the PodGroup of its `spec.schedulingGroup`; our own label or annotation; then those of the coscheduling
plugin, of Koordinator, of Kueue and of TensorFusion's allocator. Size and timeout are those that belong to the same
form, or else our own annotations. Without a size a gang is a preference only: its pods are placed near each other, and
none of them waits for another one.

Sources: github.com/kubernetes-sigs/scheduler-plugins (coscheduling), koordinator.sh, kueue.sigs.k8s.io (groups of plain
pods), github.com/NexusGPU/tensor-fusion.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from allocation import duration, names
from allocation.errors import AllocationError, invalid_annotation

MOST_MEMBERS: Final = 2048
"""The largest size of a gang: a decision about all its pods takes a fraction of a second."""
_MAX_LENGTH: Final = names.MAX_NAME_LENGTH

Keys = Mapping[str, str]
"""Labels or annotations."""


class Declaration(msgspec.Struct, frozen=True):
    """The gang of a pod, as the pod declares it.

    Attributes:
        name: the gang, unique in its namespace.
        size: how many of its pods have to get nodes together; 0 if the pod does not say.
        timeout: the seconds for which the gang may wait, or be incomplete; 0 is for ever.
        block: the key of a node label whose value all nodes of the gang must share; empty if they may differ.
        is_pod_group: whether the name is that of a PodGroup, which has the size unless the pod says it.
    """

    name: str
    size: int = 0
    timeout: float = 0.0
    block: str = ""
    is_pod_group: bool = False


class _Form(msgspec.Struct, frozen=True):
    """One way to declare a gang.

    Attributes:
        source: what names the gang, for messages.
        name: returns the gang by labels and annotations; an empty string for none.
        size_keys: what says how many of its pods have to get nodes together, the first that is there.
        timeout_keys: the same for how long it may wait.
        is_pod_group: whether the gang is a PodGroup.
    """

    source: str
    name: Callable[[Keys, Keys], str]
    size_keys: tuple[str, ...] = ()
    timeout_keys: tuple[str, ...] = ()
    is_pod_group: bool = False


def _of(*keys: str) -> Callable[[Keys, Keys], str]:
    """Return a function that reads the first of some keys that is there, annotations first."""

    def read(labels: Keys, annotations: Keys) -> str:
        return next((value for key in keys if (value := annotations.get(key) or labels.get(key))), "")

    return read


def _by_label(labels: Keys, annotations: Keys) -> str:
    """Return the value of the label whose key our annotation gives.

    Raises:
        AllocationError: the pod has no such label.
    """
    key = annotations.get(names.GANG_BY)
    if not key:
        return ""
    if not labels.get(key):
        raise invalid_annotation(names.GANG_BY, key, expected="it must be the key of a label of the pod")
    return labels[key]


def _of_tensor_fusion(_: Keys, annotations: Keys) -> str:
    is_enabled = annotations.get(names.TENSOR_FUSION_GANG) == "true"
    return annotations.get(names.TENSOR_FUSION_GROUP, "") if is_enabled else ""


_FORMS: Final = (
    _Form(names.GANG_BY, _by_label),
    _Form(names.GANG, _of(names.GANG)),
    _Form(names.COSCHEDULING_GROUP, _of(names.COSCHEDULING_GROUP), is_pod_group=True),
    _Form(names.OLD_COSCHEDULING_GROUPS[0], _of(*names.OLD_COSCHEDULING_GROUPS), (names.OLD_COSCHEDULING_SIZE,)),
    _Form(
        names.KOORDINATOR_GANG,
        _of(names.KOORDINATOR_GANG),
        (names.KOORDINATOR_SIZE,),
        (names.KOORDINATOR_TIMEOUT,),
    ),
    _Form(names.KUEUE_GROUP, _of(names.KUEUE_GROUP), (names.KUEUE_SIZE,)),
    _Form(
        names.TENSOR_FUSION_GROUP,
        _of_tensor_fusion,
        (names.TENSOR_FUSION_REQUIRED, names.TENSOR_FUSION_MIN_MEMBERS),
        (names.TENSOR_FUSION_TIMEOUT,),
    ),
)
_OF_CLAIM: Final = _Form("gangRef of its GpuClaim", lambda *_: "")
_OF_SPEC: Final = _Form("spec.schedulingGroup", lambda *_: "", is_pod_group=True)


def declared(labels: Keys, annotations: Keys, *, gang_ref: str = "", pod_group: str = "") -> Declaration | None:
    """Return the gang of a pod with these labels and annotations; None for none.

    Its GpuClaim has this `gangRef`, and its `spec.schedulingGroup` names this PodGroup, both empty for none.

    Raises:
        AllocationError: a value is not what its key holds: the message names both.
    """
    if (
        not gang_ref
        and not pod_group
        and labels.keys().isdisjoint(_LABELS)
        and annotations.keys().isdisjoint(names.GANG_KEYS)
    ):
        return None
    found = next(_named(labels, annotations, gang_ref, pod_group), None)
    if found is None:
        return None
    form, name = found
    if len(name) > _MAX_LENGTH:
        raise AllocationError(
            f"the name of the pod's gang begins with {name[:32]!r} and has {len(name)} characters: {_MAX_LENGTH} is the"
            " limit; shorten it"
        )
    size = _first(_size, (names.GANG_MIN_MEMBERS, *form.size_keys), labels, annotations)
    timeout = _first(_timeout, (names.GANG_TIMEOUT, *form.timeout_keys), labels, annotations)
    return Declaration(name, int(size), timeout, annotations.get(names.GANG_BLOCK, ""), form.is_pod_group)


def named(labels: Keys, annotations: Keys, *, gang_ref: str = "", pod_group: str = "") -> dict[str, str]:
    """Return the gangs that a pod names, by what names them; the first one counts.

    Raises:
        AllocationError: the pod does not have the label that names its gang.
    """
    return {form.source: name for form, name in _named(labels, annotations, gang_ref, pod_group)}


def _named(labels: Keys, annotations: Keys, gang_ref: str, pod_group: str) -> Iterator[tuple[_Form, str]]:
    if gang_ref:
        yield _OF_CLAIM, gang_ref
    if pod_group:
        yield _OF_SPEC, pod_group
    for form in _FORMS:
        name = form.name(labels, annotations)
        if name:
            yield form, name


def _first(read: Callable[[str, str], float], keys: tuple[str, ...], labels: Keys, annotations: Keys) -> float:
    """Return what `read` returns for the first of `keys` that a pod has, or 0."""
    for key in keys:
        text = annotations.get(key) or labels.get(key)
        if text:
            return read(key, text)
    return 0


def _size(key: str, text: str) -> float:
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= MOST_MEMBERS):
        raise invalid_annotation(key, text[:_MAX_LENGTH], expected=f"it must be a number of pods, 1 to {MOST_MEMBERS}")
    return int(text)


def _timeout(key: str, text: str) -> float:
    try:
        return 0.0 if text == "0" else duration.seconds(text)
    except AllocationError as error:
        raise invalid_annotation(
            key, text[:_MAX_LENGTH], expected="it must be a duration, such as 10m, or 0 for no limit"
        ) from error


_LABELS: Final = frozenset(
    {
        *(names.GANG, names.COSCHEDULING_GROUP, *names.OLD_COSCHEDULING_GROUPS),
        *(names.KOORDINATOR_GANG, names.KUEUE_GROUP),
    }
)
"""The labels that name a gang."""
