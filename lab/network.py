"""The real node's address, and the bridge that joins its pods."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import wait
from lab.errors import LabError
from lab.files import write_private

if TYPE_CHECKING:
    from lab.layout import Layout

# The folder of Debian, then the upstream one.
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGINS = ("bridge", "host-local", "loopback")
REMOVAL_S = 10.0


def plugin_folder() -> Path | None:
    """Return the folder with the CNI plugins, or None."""
    return next((folder for folder in PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in PLUGINS)), None)


def configure(layout: Layout) -> Path:
    """Write the CNI configuration of the pods' network, and return its folder.

    Pods reach only each other and the node. Addresses are not translated, so packet filters stay unchanged.
    """
    folder = layout.node / "cni"
    network = {
        "cniVersion": "0.4.0",
        "name": layout.bridge,
        "plugins": [
            {
                "type": "bridge",
                "bridge": layout.bridge,
                "isGateway": True,
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": layout.pod_subnet}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                    "dataDir": str(layout.node / "addresses"),
                },
            }
        ],
    }
    write_private(folder / "lab.conflist", json.dumps(network, indent=2))
    return folder


def add_address(layout: Layout) -> None:
    """Add the node's address to the loopback interface. Idempotent."""
    if not has_address(layout):
        _ip("address", "add", f"{layout.node_address}/32", "dev", "lo")


def has_address(layout: Layout) -> bool:
    """Whether the loopback interface has the node's address."""
    addresses = (address for link in _query("address", "show", "dev", "lo") for address in link["addr_info"])
    return any(address["local"] == layout.node_address for address in addresses)


def has_bridge(layout: Layout) -> bool:
    """Whether the pods' bridge exists."""
    return any(link["ifname"] == layout.bridge for link in _query("link", "show", "type", "bridge"))


def remove(layout: Layout) -> None:
    """Remove the address, the bridge and its veth interfaces. The pods' network namespaces must be gone."""
    if has_bridge(layout):
        # The kernel removes a veth pair shortly after the namespace at its other end.
        wait.until(
            lambda: not _query("link", "show", "master", layout.bridge),
            what=f"removal of the interfaces on {layout.bridge}",
            timeout_s=REMOVAL_S,
            remedy=f"see `ip link show master {layout.bridge}`",
        )
        _ip("link", "delete", layout.bridge)
    if has_address(layout):
        _ip("address", "delete", f"{layout.node_address}/32", "dev", "lo")


def _query(*arguments: str) -> list[dict[str, Any]]:
    """Return the decoded output of `ip -json`, without the empty objects that it prints for no match.

    Without the program `ip`, the lab cannot have created any interface.
    """
    if shutil.which("ip") is None:
        return []
    entries = json.loads(_ip("-json", *arguments) or "[]")
    return [entry for entry in entries if entry]


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise LabError(f"ip {' '.join(arguments)}", why=done.stderr.strip(), remedy="run `make doctor`")
    return done.stdout
