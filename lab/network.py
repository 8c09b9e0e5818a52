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

# Debian's place, then the upstream one.
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGINS = ("bridge", "host-local", "loopback")
REMOVAL_S = 10.0


def plugin_folder() -> Path | None:
    """Where the CNI plugins are, if they are."""
    return next((folder for folder in PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in PLUGINS)), None)


def configure(layout: Layout) -> Path:
    """Write the pods' network into a folder of its own and answer the folder.

    Pods reach each other and the node, nothing else: no address is translated, so no packet filter is touched.
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
    """Give the loopback interface the node's address. Harmless where it has it."""
    if not has_address(layout):
        _ip("address", "add", f"{layout.node_address}/32", "dev", "lo")


def has_address(layout: Layout) -> bool:
    """Whether the node's address is there."""
    addresses = (address for link in _query("address", "show", "dev", "lo") for address in link["addr_info"])
    return any(address["local"] == layout.node_address for address in addresses)


def has_bridge(layout: Layout) -> bool:
    """Whether the pods' bridge is there."""
    return any(link["ifname"] == layout.bridge for link in _query("link", "show", "type", "bridge"))


def remove(layout: Layout) -> None:
    """Remove address, bridge, and the bridge's end of the pods' cables. Their namespaces must have gone before."""
    if has_bridge(layout):
        # The kernel removes a cable with the namespace at its other end, a moment after that has gone.
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
    """Decoded `ip -json`; an object that matches nothing may come as an empty one.

    Where there is no `ip`, there is nothing that it made.
    """
    if shutil.which("ip") is None:
        return []
    answer = json.loads(_ip("-json", *arguments) or "[]")
    return [entry for entry in answer if entry]


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise LabError(f"ip {' '.join(arguments)}", why=done.stderr.strip(), remedy="run `python -m lab doctor`")
    return done.stdout
