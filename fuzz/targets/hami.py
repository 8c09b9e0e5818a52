"""HAMi's strings: register and score annotations in all their forms, allocation strings, MIG records.

An input is a JSON object with the fields `register`, `scores`, `devices` and `mig`, so that the strings can hold
anything. Decoding and encoding must round-trip.
"""

import msgspec

from allocation.errors import AllocationError, MalformedRecordError
from allocation.ledger.ledger import Ledger
from allocation.pod import Container, Resources
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from allocation.wire import hami, mig_record
from scheduler.state import inventories


class _Spec:
    """Three containers, two of which request a GPU."""

    init_containers = (Container(name="setup"),)
    containers = tuple(
        Container(name=name, resources=Resources(limits={"nvidia.com/gpu": "1"})) for name in ("main", "side")
    )


class _Strings(msgspec.Struct):
    register: str | None = None
    scores: str = ""
    devices: str | None = None
    mig: str | None = None


def try_bytes(data: bytes) -> None:
    """Decode the strings in `data`."""
    try:
        strings = msgspec.json.decode(data, type=_Strings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if strings.register is not None:
        _try_register(strings.register, strings.scores)
    if strings.devices is not None:
        _try_devices(strings.devices)
    if strings.mig is not None:
        _try_mig(strings.mig)


def _try_register(text: str, scores: str) -> None:
    try:
        decoded = hami.decode_register("n1", text, scores)
    except MalformedRecordError as error:
        assert "node n1, annotation" in str(error)
        return
    again = hami.decode_register("n1", hami.encode_register(decoded))
    assert hami.encode_register(again) == hami.encode_register(decoded)
    ledger = Ledger()
    try:
        ledger.set_node(inventories.read("n1", text, scores))
    except AllocationError as error:
        assert "n1" in str(error)


def _try_devices(text: str) -> None:
    try:
        decoded = hami.decode_devices(text)
    except MalformedRecordError as error:
        assert "allocation string" in str(error)
        return
    assert hami.decode_devices(hami.encode_devices(decoded)) == decoded
    request: PodRequest = read_request(_Spec(), AllocationSettings())
    read = hami.read_allocation(text, request, node="n1")
    assert sum(map(len, read.containers.values())) == sum(map(len, decoded)), "a share was lost"


def _try_mig(text: str) -> None:
    try:
        decoded = mig_record.decode(text)
    except MalformedRecordError as error:
        assert "annotation" in str(error)
        return
    assert mig_record.decode(mig_record.encode(decoded)) == decoded
    request = read_request(_Spec(), AllocationSettings())
    allocation = hami.read_allocation("GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,1,1:;", request, node="n1")
    mig_record.with_instances(allocation, request, decoded)
