"""The paths, ports and names that a lab uses on the machine.

They all follow from a folder and a base port. Labs with different folders and base ports can therefore run side by
side, and `down` finds what a crashed lab left behind.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from lab.errors import LabError
from lab.files import write_private

DEFAULT_BASE_PORT = 21000
# A base port owns a block of this size; the block's number also picks the lab's networks.
PORT_BLOCK = 100
# The kernel's limit for the path of a Unix socket (sun_path), less its final zero byte.
SOCKET_PATH_LIMIT = 107


class Port(IntEnum):
    """The listeners of a lab, as offsets from the base port."""

    ETCD = 0
    ETCD_PEER = 1
    KUBE_APISERVER = 2
    KUBE_CONTROLLER_MANAGER = 3
    KUBE_SCHEDULER = 4
    KUBELET = 5
    KUBELET_HEALTHZ = 6
    WEBHOOK = 7
    WEBHOOK_METRICS = 8
    SCHEDULER = 9
    AGENT_METRICS = 10
    SCHEDULER_API = 11
    SCHEDULER_UI = 12

    @property
    def label(self) -> str:
        """The listener's name in messages."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths and names of a lab. Creating a layout changes nothing on the machine.

    Args:
        root: the absolute path of the lab's folder.
        base_port: the first of its ports, a multiple of `PORT_BLOCK`.

    Raises:
        LabError: the port is out of range, or the folder's path is too long for the sockets in it.
    """

    root: Path
    base_port: int = DEFAULT_BASE_PORT

    def __post_init__(self) -> None:
        if not (1024 <= self.base_port <= 65535 - PORT_BLOCK and self.base_port % PORT_BLOCK == 0):
            raise LabError(
                f"base port {self.base_port}",
                why=f"it must be a multiple of {PORT_BLOCK} between 1100 and 65400",
                remedy=f"unset LAB_BASE_PORT (leave out --base-port), or set {DEFAULT_BASE_PORT} for example",
            )
        self.check_socket(self.containerd_socket)

    def check_socket(self, path: Path) -> None:
        """Check that the kernel accepts the path of a socket in the lab's folder.

        Raises:
            LabError: it is too long.
        """
        if (length := len(os.fsencode(path))) > SOCKET_PATH_LIMIT:
            raise LabError(
                f"lab folder {self.root}",
                why=f"a socket in it would have a path of {length} bytes, the kernel allows {SOCKET_PATH_LIMIT}",
                remedy="pass --root or set LAB_ROOT to a shorter path",
            )

    # ------------------------------------------------------------ files

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for the user's kubectl."""
        return self.root / "kubeconfig"

    @property
    def component_kubeconfigs(self) -> Path:
        """The kubeconfigs of processes."""
        return self.root / "kubeconfigs"

    def component_kubeconfig(self, name: str) -> Path:
        """Return the kubeconfig of one process."""
        return self.component_kubeconfigs / name

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def bin(self) -> Path:
        """Links to the programs in use: Kubernetes and containerd."""
        return self.root / "bin"

    @property
    def config(self) -> Path:
        """Configuration files that the lab writes for its processes."""
        return self.root / "config"

    @property
    def logs(self) -> Path:
        """One log for each process, and the API server's audit log."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        """One JSON event per line for every completed request to the API server."""
        return self.logs / "audit.log"

    @property
    def run(self) -> Path:
        """One record for each running process."""
        return self.root / "run"

    @property
    def etcd_data(self) -> Path:
        """The cluster's state."""
        return self.root / "etcd"

    @property
    def node(self) -> Path:
        """The folders of containerd and of the kubelet of the real node."""
        return self.root / "node"

    @property
    def kubelet(self) -> Path:
        """The folder of the kubelet."""
        return self.node / "kubelet"

    @property
    def containerd_socket(self) -> Path:
        """The path at which the kubelet finds containerd."""
        return self.node / "containerd.sock"

    @property
    def nri_socket(self) -> Path:
        """The socket at which plugins of containerd register."""
        return self.node / "nri.sock"

    @property
    def cdi_specs(self) -> Path:
        """The folder of the CDI specifications that containerd reads."""
        return self.node / "cdi"

    @property
    def evidence(self) -> Path:
        """The recorded evidence, one folder per recording."""
        return self.root / "evidence"

    @property
    def lock(self) -> Path:
        """The lock file that a running lab command holds."""
        return self.root / "lock"

    # ------------------------------------------------------------ names on the machine

    def port(self, port: Port) -> int:
        """Return the port number of a listener."""
        return self.base_port + port

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self.port(Port.KUBE_APISERVER)}"

    @property
    def network(self) -> int:
        """The third byte of this lab's addresses: 0 for the default base port."""
        return (self.base_port - DEFAULT_BASE_PORT) // PORT_BLOCK % 256

    @property
    def node_name(self) -> str:
        """The name of the real node."""
        return "gpu-real-0"

    @property
    def node_address(self) -> str:
        """The real node's address on the loopback interface: the kubelet refuses 127.0.0.1."""
        return f"10.250.{self.network}.1"

    @property
    def pod_subnet(self) -> str:
        """Addresses of the pods on the real node."""
        return f"10.251.{self.network}.0/24"

    @property
    def service_subnet(self) -> str:
        """Addresses of services. They are not routed, because the lab runs no kube-proxy."""
        return f"10.252.{self.network}.0/24"

    @property
    def bridge(self) -> str:
        """The bridge that joins the pods of the real node; at most 15 characters."""
        return f"tranche{self.base_port}"

    @property
    def cgroup(self) -> str:
        """The control group that holds every pod of the real node."""
        return f"tranche-{self.base_port}"

    # ------------------------------------------------------------ record of a started lab

    @property
    def _record(self) -> Path:
        return self.root / "layout.json"

    def remember(self) -> None:
        """Record base port and boot for later commands on the same folder."""
        write_private(self._record, json.dumps({"base_port": self.base_port, "boot": boot_id()}))

    def forget(self) -> None:
        """Remove the record, after everything of this lab was removed from the machine."""
        self._record.unlink(missing_ok=True)

    @property
    def is_remembered(self) -> bool:
        """Whether this lab was started and not stopped since."""
        return self._record.exists()

    @property
    def has_cluster(self) -> bool:
        """Whether the folder has a cluster of this boot; an early failure of a start leaves none."""
        return self.is_remembered and not self.is_stale and self.etcd_data.exists()

    @property
    def is_stale(self) -> bool:
        """Whether the machine was restarted while this lab was running."""
        return self.is_remembered and _note(self.root).get("boot") != boot_id()


def remembered(root: Path) -> Layout | None:
    """Return the layout of the lab that was started in `root`, or None."""
    base_port = _note(root).get("base_port")
    return Layout(root=root, base_port=base_port) if isinstance(base_port, int) else None


def boot_id() -> str:
    """Return an identifier of this boot of the machine; process IDs are valid only within it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _note(root: Path) -> dict[str, object]:
    try:
        note = json.loads((root / "layout.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
