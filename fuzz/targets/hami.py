"""HAMi's strings: register and score annotations in their forms, allocation strings, MIG records.

An input is a JSON object that has them by `register`, `scores`, `devices` and `mig`, so that they can hold anything;
what is read of them is written and read again as it was.
"""

import msgspec

from allocation import hami, mig_record
from allocation.errors import AllocationError, MalformedRecordError
from allocation.ledger import Ledger
from allocation.pod import Container, Resources
from allocation.request import PodRequest, read_request
from allocation.settings import AllocationSettings
from scheduler import inventories


class _Spec:
    """Three containers, of which two ask for a GPU."""

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
    """Read the strings of `data`."""
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
        found = hami.decode_register("n1", text, scores)
    except MalformedRecordError as error:
        assert "node n1, annotation" in str(error)
        return
    again = hami.decode_register("n1", hami.encode_register(found))
    assert hami.encode_register(again) == hami.encode_register(found)
    ledger = Ledger()
    try:
        ledger.set_node(inventories.read("n1", text, scores))
    except AllocationError as error:
        assert "n1" in str(error)


def _try_devices(text: str) -> None:
    try:
        found = hami.decode_devices(text)
    except MalformedRecordError as error:
        assert "allocation string" in str(error)
        return
    assert hami.decode_devices(hami.encode_devices(found)) == found
    request: PodRequest = read_request(_Spec(), AllocationSettings())
    read = hami.read_allocation(text, request, node="n1")
    assert sum(map(len, read.containers.values())) == sum(map(len, found)), "a share was lost"


def _try_mig(text: str) -> None:
    try:
        found = mig_record.decode(text)
    except MalformedRecordError as error:
        assert "annotation" in str(error)
        return
    assert mig_record.decode(mig_record.encode(found)) == found
    request = read_request(_Spec(), AllocationSettings())
    given = hami.read_allocation("GPU-a,NVIDIA,1,1:;GPU-b,NVIDIA,1,1:;", request, node="n1")
    mig_record.located(given, request, found)
