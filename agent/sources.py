"""Which inventory source is asked: the configuration, then `CUDA_VISIBLE_DEVICES`, then NVML.

NVML comes last although it knows most, because the other two are what a person decided.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from agent.fleet import FleetFile
from agent.inventory import InventoryError, InventorySource
from agent.nvml_source import NvmlSource
from agent.settings import AgentSettings
from agent.visible_devices import VARIABLE, VisibleDevices

log = logging.getLogger(__name__)


@contextmanager
def opened(
    settings: AgentSettings, *, node: str, environment: Mapping[str, str], wake: Callable[[], None]
) -> Iterator[InventorySource]:
    """Answer the source that serves `node`, usable while the block runs.

    Without a node only a fleet file can be served, and then all of it.

    Raises:
        InventoryError: the hardware is to be asked, but nobody said which node this is.
    """
    if settings.fleet_file:
        log.info("inventory by configuration file=%s", settings.fleet_file)
        yield FleetFile(Path(settings.fleet_file), node=node)
        return
    if not node:
        raise InventoryError("no node is named; set --node-name or $NODE_NAME, or name a fleet file with --fleet-file")
    with NvmlSource(node=node, settings=settings, wake=wake) as nvml:
        visible = environment.get(VARIABLE)
        if visible is None:
            log.info("inventory by NVML")
            yield nvml
        else:
            log.info("inventory by %s=%s", VARIABLE, visible)
            yield VisibleDevices(visible, node=node, settings=settings, nvml=nvml)
