"""The annotations of a resize: the size that a user wishes for a running pod, and what its containers may still use.

The wish is `{"main":{"gpumem":6000,"gpucores":40}}`: by container, what it is to have of each of its cards, in the
units of its resources. The record that the scheduler writes with a new allocation is
`{"from":{"main":[[3000,300]]},"generation":2,"containers":{"main":"containerd://…"}}`: until every container has
started again, MiB and millicards of each card that it had before still count, if they are more. Limits above the
requests are in the wish `{"main":{"gpucores":40,"limits":{"gpucores":80}}}`, and in the record
`"limits":{"main":[[0,800]]}`.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from allocation import burst, limits
from allocation.allocation import Allocation, CardShare
from allocation.burst import ContainerLimits
from allocation.errors import AllocationError, MalformedRecordError, invalid_annotation
from allocation.inventory import WHOLE_CORES
from allocation.names import RESIZE, RESIZED
from allocation.quantity import INT32_MAX
from allocation.request import MILLI_PER_PERCENT
from allocation.settings import AllocationSettings

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
_Mib = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
_Cores = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES)]

LONGEST_WISH: Final = 8 * 1024
"""Characters of a wish: the sizes and limits of 32 containers with the longest names."""
_SHOWN: Final = 200
"""Characters of a wish that a message repeats."""
_FORM: Final = '{"CONTAINER":{"gpumem":6000,"gpucores":40}}'


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a container is to have of each of its cards; None leaves what it has.

    Attributes:
        gpumem: memory, in units of the resource (MiB, unless the configuration has another factor).
        gpucores: compute in percent of a card.
        limits: the most that it may use of each, if that is to be more; one that equals the request ends the limit.
    """

    gpumem: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] | None = None
    gpucores: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES // MILLI_PER_PERCENT)] | None = None
    limits: ContainerLimits | None = None

    @property
    def changes_compute(self) -> bool:
        """Whether it says what the container is to have, or may use, of the compute."""
        return self.gpucores is not None or (self.limits is not None and self.limits.gpucores is not None)


Wish = Mapping[str, Size]
"""The sizes by container."""


class Resized(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, rename={"before": "from"}):
    """What the containers of a resized pod may still use.

    Attributes:
        before: by container, the MiB and millicards of each of its cards, in the order of its shares.
        generation: the `metadata.generation` of the pod since it has its new size; 0 where pods have none.
        containers: the ID of each container that may have the old size, since the kubelet has seen the new one; None
            until then.
        limits: by container, the MiB and millicards that it could use of each of its cards, if that was more; else 0.
    """

    before: dict[_Name, list[tuple[_Mib, _Cores]]]
    generation: Annotated[int, msgspec.Meta(ge=0)] = 0
    containers: dict[_Name, str] | None = None
    limits: dict[_Name, list[tuple[_Mib, _Cores]]] = {}


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


def wished(allocation: Allocation, wish: Wish, settings: AllocationSettings) -> Allocation:
    """Return `allocation` with the sizes of a wish.

    Raises:
        AllocationError: the wish names a container without cards, a limit is below the request or not permitted, or the
            wish changes the compute of a pod that has TFLOPs.
    """
    unknown = sorted(wish.keys() - allocation.containers.keys())
    if unknown:
        raise AllocationError(
            f"annotation {RESIZE} names container {unknown[0]}, which has no cards: those with cards are"
            f" {', '.join(allocation.containers)}"
        )
    resized = [name for name, size in wish.items() if size.changes_compute]
    if resized and allocation.has_tflops:
        raise AllocationError(
            f"annotation {RESIZE} gives container {resized[0]} other gpucores, but the pod requests compute in TFLOPs,"
            " which stay as they are: leave gpucores out"
        )
    containers = {
        name: tuple(_with_size(name, share, wish[name], settings) if name in wish else share for share in shares)
        for name, shares in allocation.containers.items()
    }
    return msgspec.structs.replace(allocation, containers=containers)


def _with_size(container: str, share: CardShare, size: Size, settings: AllocationSettings) -> CardShare:
    memory = share.memory_mib if size.gpumem is None else size.gpumem * settings.memory_factor
    cores = share.cores if size.gpucores is None else size.gpucores * MILLI_PER_PERCENT
    if memory > INT32_MAX:
        raise AllocationError(f"annotation {RESIZE}: {memory} MiB are more than any card has")
    limits = size.limits or ContainerLimits()
    cores_limit = share.cores_limit if limits.gpucores is None else limits.gpucores * MILLI_PER_PERCENT
    memory_limit = share.memory_limit_mib if limits.gpumem is None else limits.gpumem * settings.memory_factor
    where = f"annotation {RESIZE}, container {container}:"
    if limits.gpumem is not None and memory_limit > memory:
        burst.check_memory_bursting(settings, where)
    for name, amount, limit in (("gpucores", cores, cores_limit), ("gpumem", memory, memory_limit)):
        if 0 < limit < amount:
            raise AllocationError(
                f"{where} the limit of {name} would be below the request: write a limit that is at least as high, too"
            )
    return msgspec.structs.replace(share, memory_mib=memory, cores=cores).up_to(memory_limit, cores_limit)


def before(allocation: Allocation) -> dict[str, list[tuple[int, int]]]:
    """Return the amounts of an allocation as `Resized.before` has them."""
    return {name: [(each.memory_mib, each.cores) for each in shares] for name, shares in allocation.containers.items()}


def limits_before(allocation: Allocation) -> dict[str, list[tuple[int, int]]]:
    """Return the limits above the amounts as `Resized.limits` has them; empty without any."""
    if not allocation.is_bursting:
        return {}
    shares_by_name = allocation.containers.items()
    return {name: [(each.memory_limit_mib, each.cores_limit) for each in shares] for name, shares in shares_by_name}


def usable(allocation: Allocation, resized: Resized) -> Allocation:
    """Return what the containers of a resized pod may use at most: some may still have what they had before.

    Raises:
        MalformedRecordError: the two are not of the same containers and cards.
    """
    older = resized.before
    older_limits = resized.limits or {name: [(0, 0)] * len(each) for name, each in older.items()}
    shares = allocation.containers
    counts = {name: len(each) for name, each in shares.items()}
    if any({name: len(each) for name, each in part.items()} != counts for part in (older, older_limits)):
        raise MalformedRecordError(f"annotation {RESIZED} is not about the cards of the allocation")
    containers = {
        name: tuple(
            msgspec.structs.replace(
                share, memory_mib=memory, cores=cores, memory_limit_mib=memory_limit, cores_limit=cores_limit
            )
            for share, (memory, cores), (memory_limit, cores_limit) in zip(
                own, older[name], older_limits[name], strict=True
            )
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
        name: tuple(_larger(share, other) for share, other in zip(shares, right.containers[name], strict=True))
        for name, shares in left.containers.items()
    }
    return msgspec.structs.replace(left, containers=containers)


def _larger(left: CardShare, right: CardShare) -> CardShare:
    memory, cores = max(left.memory_mib, right.memory_mib), max(left.cores, right.cores)
    most = left.at_limits(), right.at_limits()
    larger = msgspec.structs.replace(left, memory_mib=memory, cores=cores)
    return larger.up_to(max(each.memory_mib for each in most), max(each.cores for each in most))


def _cards(allocation: Allocation) -> dict[str, list[str]]:
    return {name: [share.uuid for share in shares] for name, shares in allocation.containers.items()}
