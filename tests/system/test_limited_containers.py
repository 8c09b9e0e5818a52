"""Two containers of a card keep to their own limits to their end, on a real kubelet and containerd 2.

The driver, HAMi-core and the program that allocates until it is refused are stubs (support/stubbed_node.py), and so is
NVIDIA's toolkit, whose hook the container runtime runs.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from agent.nri.memory_limits import MemoryLimits
from agent.nvml.memory_limits import Limit
from agent.settings import AgentSettings
from allocation.isolation import Isolation
from lab import cgroups, wait
from lab.files import write_private
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace
from tests.system.support import agents_plugin, nvidia_software
from tests.system.support.nri_plugin import NriPlugin
from tests.system.support.stubbed_node import allocated, limited, stubbed
from tests.system.test_delivery import delivery, running
from tests.system.test_isolation import offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.kubelet]


@pytest.fixture
def settings(tranche_node: Layout, tmp_path: Path) -> Iterator[AgentSettings]:
    """Those of the agent of the real node, which has the stubs."""
    with stubbed(tranche_node, tmp_path) as made:
        yield made


class Driver:
    """The driver's limits as the agent sets them, for the stub of its library, which knows a container by a name."""

    def __init__(self, settings: AgentSettings) -> None:
        self._counts = Path(settings.mps_pipe_directory).with_name("counts")
        self._starts = ""
        self._cgroups: set[Path] = set()

    def start(self, name: str) -> None:
        """Let the container of a pod start next; the agent names its control group only."""
        self._starts = name

    def apply(self, cgroup: str, limits: Mapping[str, Limit]) -> None:
        """Limit the container that starts."""
        self._cgroups.add(Path(cgroup).relative_to(cgroups.MOUNT))
        (limit,) = limits.values()
        (self._counts / f"limit.{self._starts}").write_text(str(limit.limit))

    def is_rid_of_all(self) -> bool:
        """Whether no control group is left, with which its limit ends."""
        roots = [cgroups.MOUNT, *cgroups.MOUNT.iterdir()]
        return not any((root / cgroup).exists() for root in roots for cgroup in self._cgroups)


@pytest.fixture
def daemon(settings: AgentSettings) -> Iterator[None]:
    """A control daemon of MPS, at the pipes of the node."""
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(f"{settings.mps_pipe_directory}/control")
        control.listen()
        yield


def until_it_ends(made: dict[str, Any], mib: int) -> dict[str, Any]:
    """Return the pod with this much memory; its container ends when a file exists, and the stub has a name for it."""
    (container,) = made["spec"]["containers"]
    container["command"] = ["sh", "-c", "while [ ! -e /end ]; do sleep 0.1; done"]
    container["env"] = [{"name": "STUB_CGROUP", "value": made["metadata"]["name"]}]
    container["resources"]["limits"]["nvidia.com/gpumem"] = mib
    return made


@pytest.mark.parametrize("isolation", [Isolation.HAMI_CORE, Isolation.MPS, Isolation.CUDA])
def test_two_containers_of_a_card_keep_to_their_limits_to_their_end(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings, daemon: None, isolation: Isolation
) -> None:
    """Each is refused what is more than its own, also after a restart; nothing of them stays on the node."""
    driver = Driver(settings)
    limits = MemoryLimits(driver.apply) if isolation is Isolation.CUDA else None
    chosen = msgspec.structs.replace(settings, memory_limits="agent") if limits is not None else settings
    with (
        offered(tranche_node, isolation),
        delivery(tranche_node, agents_plugin.REGISTERED),
        agents_plugin.running(tranche_node, chosen, limits),
    ):
        two_keep_to_their_limits(tranche_node, namespace, isolation, starts=driver.start)
        wait.until(driver.is_rid_of_all, what="the end of the control groups", timeout_s=PATIENCE_S)
    kept = {"ld.so.preload", "empty"} if isolation is Isolation.HAMI_CORE else set()
    assert left_by_containers(settings) == kept


def test_two_containers_of_a_card_keep_to_the_limits_of_nvidias_toolkit(
    tranche_node: Layout, namespace: Namespace, settings: AgentSettings
) -> None:
    """Its hook sets them by the variables of the Binding, as a hook of the container runtime; an empty one starts none.

    Played by what its source says (`apply-cuda-memory-limits`): a CDI specification has the hook.
    """
    with_hook(tranche_node, settings)
    with (
        offered(tranche_node, Isolation.CUDA),
        delivery(tranche_node, {"mode": "cdi"}),
        NriPlugin(tranche_node.nri_socket, nvidia_software.operator_runtime),
    ):
        two_keep_to_their_limits(tranche_node, namespace, Isolation.CUDA)
    assert left_by_containers(settings) == {"hook"}


def two_keep_to_their_limits(
    layout: Layout, namespace: Namespace, isolation: Isolation, *, starts: Callable[[str], None] = lambda _: None
) -> None:
    """Start two pods on a card, restart the container of one, and delete both; `starts` is called before each start."""
    limits = {"first": 3000, "second": 5000}
    for name, mib in limits.items():
        starts(name)
        running(namespace, until_it_ends(limited(layout, isolation, name), mib))
    assert {name: int(allocated(namespace, name=name)) for name in limits} == limits
    starts("first")
    namespace.kubectl("exec", "first", "--", "touch", "/end")
    wait.until(lambda: has_restarted(namespace, "first"), what="a restarted container", timeout_s=PATIENCE_S)
    assert {name: int(allocated(namespace, name=name)) for name in limits} == limits
    namespace.delete("pods", *limits, grace_s=1)


def left_by_containers(settings: AgentSettings) -> set[str]:
    """Return the files that are left in the folders of the node, apart from those of the stub of the driver."""
    folder = Path(settings.mps_pipe_directory).parent
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    return left - {"lock", "limit.first", "limit.second"}


HOOK = """#!/usr/bin/python3
import json, pathlib, sys
bundle = pathlib.Path(json.load(sys.stdin)["bundle"])
entries = json.loads((bundle / "config.json").read_text())["process"]["env"]
values = dict(entry.partition("=")[::2] for entry in entries)
request, limit = (values.get("NVIDIA_GPU_MEMORY_" + name) for name in ("REQUEST", "LIMIT"))
if request is not None or limit is not None:
    if not 0 < int(request) <= int(limit):
        sys.exit("apply-cuda-memory-limits: not two amounts")
    pathlib.Path(sys.argv[1], "limit." + values["STUB_CGROUP"]).write_text(limit)
"""


def with_hook(layout: Layout, settings: AgentSettings) -> None:
    """Add the toolkit's hook to what each container with cards gets; it tells the stub of the driver the limit."""
    program = Path(settings.mps_pipe_directory).with_name("hook")
    program.write_text(HOOK, encoding="utf-8")
    program.chmod(0o755)
    arguments = [program.name, str(program.with_name("counts"))]
    hook = {"hookName": "createRuntime", "path": str(program), "args": arguments}
    for path in layout.cdi_specs.glob("*.json"):
        spec = json.loads(path.read_text(encoding="utf-8"))
        spec["containerEdits"]["hooks"] = [hook]
        write_private(path, json.dumps(spec))


def has_restarted(namespace: Namespace, name: str) -> bool:
    """Whether another container of the pod runs."""
    (status,) = namespace.pod(name)["status"]["containerStatuses"]
    return bool(status["restartCount"] and status["ready"])
