"""The real node with stubs of the driver, of HAMi-core and of a program that allocates until it is refused.

The container runtime mounts them into containers (`tests.cuda.programs`) as it mounts the real ones.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.settings import AgentSettings
from allocation.names import ISOLATION
from lab import fleet
from tests.cuda.programs import Programs, build
from tests.system.conftest import Namespace, pod
from tests.system.support import nvidia_software

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocation.isolation import Isolation
    from lab.layout import Layout

CARD_MIB = 8000
_PROBE = "/stub/probe"


@contextmanager
def stubbed(layout: Layout, programs: Path) -> Iterator[AgentSettings]:
    """Yield the settings of the node's agent; the stubs are built in the folder `programs`.

    Their other folder has a short name, as the path of a socket must be.
    """
    built = build(programs)
    folder = Path(tempfile.mkdtemp(prefix="tranche-"))
    folder.chmod(0o755)
    for name in ("pipes", "shm"):
        (folder / name).mkdir()
    (folder / "counts").mkdir()
    (folder / "counts").chmod(0o777)
    uuids = [fleet.card(layout.node_name, index) for index in range(fleet.CARDS_PER_NODE)]
    nvidia_software.write_specs(layout.cdi_specs, uuids, driver=_driver(built, uuids[0], folder / "counts"))
    yield AgentSettings(
        hami_core_library=str(built.limiter),
        mps_pipe_directory=str(folder / "pipes"),
        mps_shared_memory=str(folder / "shm"),
        nri_files=str(folder / "files"),
    )
    shutil.rmtree(folder)


def _driver(programs: Programs, card: str, counts: Path) -> dict[str, Any]:
    """Return what a CDI specification adds to each container: the stub of the driver, and all that it is linked to."""
    printed = subprocess.run(["ldd", programs.probe, programs.limiter], capture_output=True, text=True, check=True)
    linked = {path for path in re.findall(r"(/\S+) \(0x", printed.stdout) if path.startswith("/lib")}
    (libc,) = (Path(path) for path in linked if Path(path).name.startswith("libc.so"))
    sources = {
        _PROBE: programs.probe,
        str(libc.with_name("libcuda.so.1")): programs.driver / "libcuda.so.1",
        **{path: Path(path) for path in linked},
    }
    files = [
        {"hostPath": str(source), "containerPath": path, "options": ["ro", "rbind"]} for path, source in sources.items()
    ]
    shared = {"hostPath": str(counts), "containerPath": "/stub/counts", "options": ["rw", "rbind"]}
    return {
        "mounts": [*files, shared],
        "env": [f"STUB_CARDS={card}:{CARD_MIB}", "STUB_STATE=/stub/counts"],
    }


def limited(layout: Layout, isolation: Isolation, name: str = "limited") -> dict[str, Any]:
    """Return a pod that may use 3000 MiB of the node's first card."""
    made = pod(name, node=layout.node_name, gpu=1, gpumem=3000, gpucores=30)
    card = fleet.card(layout.node_name, 0)
    made["metadata"]["annotations"] = {ISOLATION: isolation.value, "nvidia.com/use-gpuuuid": card}
    return made


def allocated(namespace: Namespace, *command: str, name: str = "limited") -> str:
    """Run the program that allocates until it is refused in a container; return the MiB that it got."""
    return namespace.kubectl("exec", name, "--", *command, _PROBE, "500").partition(":")[0]
