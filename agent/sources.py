"""Selects the inventory source: a fleet file if configured, else `CUDA_VISIBLE_DEVICES` if set, else NVML.

NVML is last although it knows most, because an administrator chose the other two.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.declared.fleet import FleetFile
from agent.inventory import InventoryError, InventorySource
from agent.nvml.source import NvmlSource
from agent.nvml.visible_devices import VARIABLE, VisibleDevices
from agent.settings import AgentSettings

log = logging.getLogger(__name__)


@contextmanager
def opened(
    settings: AgentSettings, *, node: str, environment: Mapping[str, str], wake: Callable[[], None]
) -> Iterator[InventorySource]:
    """Open the source that serves `node` for the duration of the block.

    An empty `node` stands for every node of the fleet file; the other sources need a name.

    Raises:
        InventoryError: there is neither a fleet file nor the name of a node.
    """
    if settings.fleet_file:
        log.info("inventory from fleet file %s", settings.fleet_file)
        yield FleetFile(Path(settings.fleet_file), node=node)
        return
    if not node:
        raise InventoryError("no node is named; set --node-name or $NODE_NAME, or name a fleet file with --fleet-file")
    with NvmlSource(node=node, settings=settings, wake=wake) as nvml:
        visible = environment.get(VARIABLE)
        if visible is None:
            log.info("inventory from NVML")
            yield nvml
        else:
            log.info("inventory from %s=%s", VARIABLE, visible)
            yield VisibleDevices(visible, node=node, settings=settings, nvml=nvml)
