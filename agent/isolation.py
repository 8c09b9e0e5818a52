"""The isolation backends that a node offers; a pod selects one by the annotation `gpu.scheduling/isolation`.

The agent reports a backend if its files exist: without them a container would run without the limit that it was
promised, or would not start. The agent does not check whether the MPS daemon behind its pipe directory is alive: a
client finds out at its first CUDA call.
"""

from pathlib import Path
from typing import Final

from agent.report import NO_ISOLATION
from agent.settings import AgentSettings

HAMI_CORE: Final = "hami-core"
MPS: Final = "mps"


def backends(settings: AgentSettings) -> tuple[str, ...]:
    """Return the backends that this node offers now; `none` is always one of them."""
    offered = [NO_ISOLATION]
    if settings.hami_core_library and Path(settings.hami_core_library).is_file():
        offered.append(HAMI_CORE)
    if settings.mps_pipe_directory and Path(settings.mps_pipe_directory).is_dir():
        offered.append(MPS)
    return tuple(offered)
