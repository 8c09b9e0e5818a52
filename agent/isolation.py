"""Which isolation backends a node can offer: what a pod asks for by `gpu.scheduling/isolation`.

A backend is reported where its files are: without them a container that was promised a limit would run without one, or
not start. Whether the MPS daemon behind its directory lives is not asked: a client finds out at its first CUDA call.
"""

from pathlib import Path
from typing import Final

from agent.report import NO_ISOLATION
from agent.settings import AgentSettings

HAMI_CORE: Final = "hami-core"
MPS: Final = "mps"


def backends(settings: AgentSettings) -> tuple[str, ...]:
    """Answer what the node of this process can offer now; `none` always."""
    found = [NO_ISOLATION]
    if settings.hami_core_library and Path(settings.hami_core_library).is_file():
        found.append(HAMI_CORE)
    if settings.mps_pipe_directory and Path(settings.mps_pipe_directory).is_dir():
        found.append(MPS)
    return tuple(found)
