"""Stand-ins for NVIDIA's software on a node without a GPU: what its documentation says of names, on a real containerd.

NVIDIA's runtime makes CDI specifications itself; here files have them, with a harmless device for each card.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from allocation import quantity
from lab.files import write_private
from tests.system.support.nri_plugin import DeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
_AMOUNTS, _MIB = ("request", "limit"), 2**20
TOOLKIT, HOST, MANAGEMENT = "runtime.nvidia.com/gpu", "nvidia.com/gpu", "management.nvidia.com/gpu"


def write_specs(folder: Path, uuids: Sequence[str], *, driver: Mapping[str, object] | None = None) -> None:
    """Write the CDI specifications of a node with these cards; card N is `/dev/nvidiaN`, which works as `/dev/null`.

    `driver` are the edits by which each container with cards gets the driver's libraries.
    """
    devices = {
        uuid: {"path": f"/dev/nvidia{index}", "type": "c", "major": 1, "minor": 3} for index, uuid in enumerate(uuids)
    }
    singles = [{"name": uuid, "containerEdits": {"deviceNodes": [node]}} for uuid, node in devices.items()]
    every = {"name": "all", "containerEdits": {"deviceNodes": list(devices.values())}}
    for kind, listed in ((TOOLKIT, [*singles, every]), (HOST, [*singles, every]), (MANAGEMENT, [every])):
        spec: dict[str, object] = {"cdiVersion": "0.6.0", "kind": kind, "devices": listed}
        if driver:
            spec["containerEdits"] = driver
        write_private(folder / f"{kind.replace('/', '-')}.json", json.dumps(spec))


def _visible(environment: Mapping[str, str]) -> list[str]:
    value = environment.get(VARIABLE, "")
    return [] if value in ("", "void", "none") else value.split(",")


def operator_runtime(_annotations: Mapping[str, str], _container: str, environment: Mapping[str, str]) -> list[str]:
    """NVIDIA's runtime as GPU Operator 25.10 and newer configures it: mode `cdi`, management devices by default."""
    return [name if "=" in name else f"{MANAGEMENT}={name}" for name in _visible(environment)]


def fractioning_plugin(annotations: Mapping[str, str], container: str) -> dict[str, str]:
    """The plugin of kai-gpu-fractioning: the variables that it sets by the annotations of a container, in MiB.

    As its sources say (`plugin.go`, `annotations.go`): a container without an amount of memory is left alone; of
    request and limit one replaces a missing other; the devices go to NVIDIA's runtime as they are. Its daemon of MPS,
    whose pipes it mounts as well, is not played.
    """
    given = {what: annotations.get(f"nvidia.com/container.{container}.gpu-memory.{what}", "") for what in _AMOUNTS}
    if not any(given.values()):
        return {}
    request, limit = (quantity.parse(given[what] or given[other]) for what, other in (_AMOUNTS, _AMOUNTS[::-1]))
    devices = annotations.get(f"nvidia.com/container.{container}.gpus.devices", "").strip()
    portion = annotations.get(f"nvidia.com/container.{container}.gpu-compute.portion", "")
    return {
        "NVIDIA_GPU_MEMORY_REQUEST": str(math.ceil(request / _MIB)),
        "NVIDIA_GPU_MEMORY_LIMIT": str(math.ceil(limit / _MIB)),
        **({VARIABLE: devices} if devices else {}),
        **({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(round(float(portion) * 100))} if portion else {}),
    }


def legacy_runtime(_annotations: Mapping[str, str], _container: str, environment: Mapping[str, str]) -> list[str]:
    """NVIDIA's runtime in mode `legacy`: UUIDs, without CDI."""
    visible = _visible(environment)
    if qualified := [name for name in visible if "=" in name]:
        raise DeviceError(f"unknown device: {qualified[0]}")
    return [f"{HOST}={name}" for name in visible]


def operator_nri_plugin(annotations: Mapping[str, str], container: str, _environment: Mapping[str, str]) -> list[str]:
    """The NRI plugin of the GPU Operator (`cdi.nriPluginEnabled`): a pod's annotation, and no variable."""
    value = annotations.get(f"nvidia.cdi.k8s.io/container.{container}", "")
    return value.split(",") if value else []
