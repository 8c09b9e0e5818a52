"""The annotations of a resize: the size that a user wishes for a running pod, and what its containers may still use.

The wish is `{"main":{"gpumem":6000,"gpucores":40}}`: by container, what it is to have of each of its cards, in the
units of its resources. The record that the scheduler writes with a new allocation is
`{"from":{"main":[[3000,300]]},"generation":2,"containers":{"main":"containerd://…"}}`: until every container has
started again, MiB and millicards of each card that it had before still count, if they are more.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from allocation import limits
from allocation.allocation import Allocation, CardShare
from allocation.errors import AllocationError, MalformedRecordError, invalid_annotation
from allocation.inventory import WHOLE_CORES
from allocation.names import RESIZE, RESIZED
from allocation.quantity import INT32_MAX
from allocation.request import MILLI_PER_PERCENT

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Mib = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
_Cores = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES)]

LONGEST_WISH: Final = 4 * 1024
"""Characters of a wish: the sizes of 32 containers with the longest names."""
_SHOWN: Final = 200
"""Characters of a wish that a message repeats."""
_FORM: Final = '{"CONTAINER":{"gpumem":6000,"gpucores":40}}'


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a container is to have of each of its cards; None leaves what it has.

    Attributes:
        gpumem: memory, in units of the resource (MiB, unless the configuration has another factor).
        gpucores: compute in percent of a card.
    """

    gpumem: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    gpucores: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES // MILLI_PER_PERCENT)] | None = None


Wish = Mapping[str, Size]
"""The sizes by container."""


class Resized(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"before": "from"}):
    """What the containers of a resized pod may still use.

    Attributes:
        before: by container, the MiB and millicards of each of its cards, in the order of its shares.
        generation: the `metadata.generation` of the pod since it has its new size; 0 where pods have none.
        containers: the ID of each container that may have the old size, since the kubelet has seen the new one; None
            until then.
    """

    before: dict[_Name, list[tuple[_Mib, _Cores]]]
    generation: Annotated[int, msgspec.Meta(ge=0)] = 0
    containers: dict[_Name, str] | None = None


_wishes: Final = msgspec.json.Decoder(dict[_Name, Size])
_records: Final = msgspec.json.Decoder(Resized)
_encoder: Final = msgspec.json.Encoder()


def encode_wish(wish: Wish) -> str:
    """Return the annotation's value."""
    return _encoder.encode(wish).decode()


def decode_wish(text: str) -> dict[str, Size]:
    """Read the size that a user wishes.

    Raises:
        InvalidFieldError: the value is too long, or not of the form.
    """
    shown = text[:_SHOWN]
    if len(text) > LONGEST_WISH:
        expected = f"it must have at most {LONGEST_WISH} characters"
        raise invalid_annotation(RESIZE, f"{shown}…", expected=expected)
    try:
        wish = _wishes.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid_annotation(RESIZE, shown, expected=f"it must be of the form {_FORM}: {error}") from None
    if len(wish) > limits.GPU_CONTAINERS:
        expected = f"it must name at most {limits.GPU_CONTAINERS} containers"
        raise invalid_annotation(RESIZE, shown, expected=expected)
    return wish


def encode_resized(resized: Resized) -> str:
    """Return the annotation's value."""
    return _encoder.encode(resized).decode()


def resized_of(annotations: Mapping[str, str]) -> Resized | None:
    """Return what the annotations of a pod say about its resize; None if no resize is in progress.

    Raises:
        MalformedRecordError: the annotation cannot be read.
    """
    text = annotations.get(RESIZED)
    if text is None:
        return None
    try:
        return _records.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MalformedRecordError(f"annotation {RESIZED}: {error}") from None


def wished(allocation: Allocation, wish: Wish, *, memory_factor: int) -> Allocation:
    """Return `allocation` with the sizes of a wish.

    Raises:
        AllocationError: the wish names a container without cards.
    """
    unknown = sorted(wish.keys() - allocation.containers.keys())
    if unknown:
        raise AllocationError(
            f"annotation {RESIZE} names container {unknown[0]}, which has no cards: those with cards are"
            f" {', '.join(allocation.containers)}"
        )
    containers = {
        name: tuple(_with_size(share, wish.get(name, Size()), memory_factor) for share in shares)
        for name, shares in allocation.containers.items()
    }
    return msgspec.structs.replace(allocation, containers=containers)


def _with_size(share: CardShare, size: Size, memory_factor: int) -> CardShare:
    memory = share.memory_mib if size.gpumem is None else size.gpumem * memory_factor
    cores = share.cores if size.gpucores is None else size.gpucores * MILLI_PER_PERCENT
    if memory > INT32_MAX:
        raise AllocationError(f"annotation {RESIZE}: {memory} MiB are more than any card has")
    return msgspec.structs.replace(share, memory_mib=memory, cores=cores)


def before(allocation: Allocation) -> dict[str, list[tuple[int, int]]]:
    """Return the amounts of an allocation as `Resized.before` has them."""
    return {name: [(each.memory_mib, each.cores) for each in shares] for name, shares in allocation.containers.items()}


def usable(allocation: Allocation, resized: Resized) -> Allocation:
    """Return what the containers of a resized pod may use at most: some may still have what they had before.

    Raises:
        MalformedRecordError: the two are not of the same containers and cards.
    """
    older = resized.before
    shares = allocation.containers
    if {name: len(each) for name, each in older.items()} != {name: len(each) for name, each in shares.items()}:
        raise MalformedRecordError(f"annotation {RESIZED} is not about the cards of the allocation")
    containers = {
        name: tuple(
            msgspec.structs.replace(share, memory_mib=memory, cores=cores)
            for share, (memory, cores) in zip(own, older[name], strict=True)
        )
        for name, own in shares.items()
    }
    return ceiling(allocation, msgspec.structs.replace(allocation, containers=containers))


def ceiling(left: Allocation, right: Allocation) -> Allocation:
    """Return the larger of two sizes of the same cards for each share.

    Each container has one of the two, independent of the others: so not the larger of two sums.

    Raises:
        MalformedRecordError: the two are not of the same containers and cards.
    """
    if _cards(left) != _cards(right):
        raise MalformedRecordError(f"annotation {RESIZED}: a resize never changes cards, but these are others")
    containers = {
        name: tuple(
            msgspec.structs.replace(
                share, memory_mib=max(share.memory_mib, other.memory_mib), cores=max(share.cores, other.cores)
            )
            for share, other in zip(shares, right.containers[name], strict=True)
        )
        for name, shares in left.containers.items()
    }
    return msgspec.structs.replace(left, containers=containers)


def _cards(allocation: Allocation) -> dict[str, list[str]]:
    return {name: [share.uuid for share in shares] for name, shares in allocation.containers.items()}
