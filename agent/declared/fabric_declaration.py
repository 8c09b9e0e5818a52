"""The adapters and the storage path of a node in a fleet file; the keys are those of the API.

    {hcas: [{name: mlx5_0, numa: 0, gpuDirect: true, ports: [{number: 1, rateGbps: 400}]}], cuFile: {enabled: true}}

An adapter needs a name, a port its number, and cuFile `enabled`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from agent.declared import keys
from agent.declared.keys import Key
from agent.fabric import HCA_NAME, LINK_LAYERS, LONGEST_TEXT, MOST_HCAS, MOST_PORTS
from allocation.errors import InvalidFieldError
from allocation.fabric import CuFile, Fabric, Hca, HcaPort, PortState
from allocation.topology.layout import NUMA_UNKNOWN


def _is_name(value: object) -> bool:
    return isinstance(value, str) and HCA_NAME.fullmatch(value) is not None


_FABRIC: Final = {"hcas": keys.list_of("adapters", MOST_HCAS), "cuFile": keys.mapping()}
_HCA: Final = {
    "name": Key("it must be a name of at most 63 characters, of A-Z, a-z, 0-9, '_', '.' and '-'", _is_name),
    "model": keys.text(LONGEST_TEXT),
    "numa": keys.whole(0, default=NUMA_UNKNOWN),
    "gpuDirect": keys.boolean(default=False),
    "ports": keys.list_of("ports", MOST_PORTS),
}
_PORT: Final = {
    "number": keys.whole(1),
    "state": keys.one_of(*get_args(PortState), default="Active"),
    "rateGbps": keys.whole(0, default=0),
    "linkLayer": keys.one_of(*LINK_LAYERS, default="InfiniBand"),
}
_CU_FILE: Final = {"enabled": keys.boolean(), "version": keys.text(LONGEST_TEXT)}


def read_fabric(declared: object, *, place: str) -> Fabric | None:
    """Return the fabric that a node's mapping declares, or None if it declares none.

    `place` is the position of `declared` in the file, for messages.

    Raises:
        InvalidFieldError: a key is unknown or has an invalid value.
    """
    if not isinstance(declared, Mapping) or "fabric" not in declared:
        return None
    place = f"{place}.fabric"
    fields = keys.read(declared["fabric"], _FABRIC, place=place, example="{hcas: [{name: mlx5_0}]}")
    hcas = [_hca(each, place=f"{place}.hcas[{position}]") for position, each in enumerate(fields["hcas"])]
    _check_unique([hca.name for hca in hcas], "name", place=f"{place}.hcas")
    return Fabric(tuple(hcas), _cu_file(fields["cuFile"], place=f"{place}.cuFile"))


def _hca(declared: object, *, place: str) -> Hca:
    fields = keys.read(declared, _HCA, place=place, example="{name: mlx5_0}")
    ports = [_port(each, place=f"{place}.ports[{position}]") for position, each in enumerate(fields["ports"])]
    _check_unique([port.number for port in ports], "number", place=f"{place}.ports")
    return Hca(
        name=fields["name"],
        model=fields["model"],
        ports=tuple(ports),
        gpu_direct=fields["gpuDirect"],
        numa=fields["numa"],
    )


def _port(declared: object, *, place: str) -> HcaPort:
    fields = keys.read(declared, _PORT, place=place, example="{number: 1, rateGbps: 400}")
    return HcaPort(fields["number"], fields["state"], fields["rateGbps"], fields["linkLayer"])


def _cu_file(declared: Mapping[Any, Any] | None, *, place: str) -> CuFile:
    if declared is None:
        return CuFile()
    fields = keys.read(declared, _CU_FILE, place=place, example="{enabled: true}")
    return CuFile(enabled=fields["enabled"], version=fields["version"])


def _check_unique(values: Sequence[object], key: str, *, place: str) -> None:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise InvalidFieldError(
                field=f"{place}[{position}].{key}",
                value=value,
                expected=f"another entry has this {key}",
                remedy=f"give each a different {key}",
            )
