"""The allocation annotation: an allocation as text.

`{"v":1,"node":"n1","containers":{"main":[{"uuid":"GPU-…","index":0,"memoryMiB":3000,"cores":300}]}}`, cores in
millicards; a MIG instance has the UUID of its card as `parent`, a card that no other pod may use is `whole`. The shares
of a pod that requests TFLOPs have these in thousandths as `tflops`.
`"isolation":"mps"` says what enforces the limits of the pod; without it nothing does.
A container that may use more than is reserved for it has `"coresLimit":600` or `"memoryLimitMiB":8000` as well.
The allocation for a GpuClaim has `"claim":{"name":"single-gpu","exclusivity":"Exclusive"}`, after which it charges each
card once. A static allocation has the same key, so a person may have written what is read here.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from allocation.allocation import Allocation, CardShare, ClaimMark, Exclusivity
from allocation.errors import MalformedRecordError
from allocation.inventory import WHOLE_CORES
from allocation.isolation import Isolation
from allocation.names import ALLOCATION
from allocation.quantity import INT32_MAX

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


_JSON_NAMES = {"memory_mib": "memoryMiB", "memory_limit_mib": "memoryLimitMiB", "cores_limit": "coresLimit"}


class _Share(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename=_JSON_NAMES):
    """A `CardShare` as it is written, with the same fields in the same order."""

    uuid: _Name
    index: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]
    cores: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES)]
    parent: Annotated[str, msgspec.Meta(max_length=253)] = ""
    whole: bool = False
    tflops: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0
    memory_limit_mib: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0
    cores_limit: Annotated[int, msgspec.Meta(ge=0, le=WHOLE_CORES)] = 0


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    name: _Name
    exclusivity: Exclusivity


class _Record(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    v: Literal[1]
    node: _Name
    containers: dict[_Name, list[_Share]]
    claim: _Claim | None = None
    isolation: Isolation = Isolation.NONE


_LONGEST_REASON = 300
"""Characters of why a text is invalid, which may quote it."""
_decoder = msgspec.json.Decoder(_Record)
_encoder = msgspec.json.Encoder()


def encode(allocation: Allocation) -> str:
    """Return the annotation's value."""
    containers = {name: [_share(share) for share in shares] for name, shares in allocation.containers.items()}
    mark = allocation.claim
    claim = None if mark is None else _Claim(mark.name, mark.exclusivity)
    return _encoder.encode(_Record(1, allocation.node, containers, claim, allocation.isolation)).decode()


def _share(share: CardShare) -> _Share:
    return _Share(*msgspec.structs.astuple(share))


def decode(text: str) -> Allocation:
    """Read the annotation's value.

    Raises:
        MalformedRecordError: the value is invalid; the message says what is wrong, and where.
    """
    try:
        record = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise MalformedRecordError(
            f"annotation {ALLOCATION}: {str(error)[:_LONGEST_REASON]}; expected "
            '{"v":1,"node":NODE,"containers":{CONTAINER:[{"uuid":…,"index":…,"memoryMiB":…,"cores":…}]}}'
        ) from None
    containers: dict[str, tuple[CardShare, ...]] = {}
    for name, shares in record.containers.items():
        uuids = [share.uuid for share in shares]
        if len(set(uuids)) != len(uuids):
            raise MalformedRecordError(f"annotation {ALLOCATION}: container {name} has a card twice")
        containers[name] = tuple(CardShare(*msgspec.structs.astuple(share)) for share in shares)
    claim = record.claim
    if claim is None:
        return Allocation(record.node, containers, isolation=record.isolation)
    if len(set(containers.values())) > 1:
        raise MalformedRecordError(
            f"annotation {ALLOCATION}: the containers of GpuClaim {claim.name} have different cards; expected the same"
        )
    return Allocation(record.node, containers, ClaimMark(claim.name, claim.exclusivity), record.isolation)


def of_annotations(annotations: Mapping[str, str]) -> Allocation | None:
    """Return the allocation in a pod's annotations, or None.

    Raises:
        MalformedRecordError: the annotation cannot be read.
    """
    text = annotations.get(ALLOCATION)
    return None if text is None else decode(text)
