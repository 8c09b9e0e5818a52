"""How this node delivers cards to containers: as configured, else as NVIDIA's container toolkit on it supports.

The agent sees the toolkit and the socket for NRI plugins only where the folders of the host are mounted
(manifests/delivery). It cannot see whether the NRI plugin of the GPU Operator or kai-gpu-fractioning runs, so
`nvidia-nri` and `nvfractions` must be configured, and so must `nri` and `device-plugin`, by which the agent is a plugin
itself.
"""

import functools
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final, Protocol

from agent.report import NodeReport
from agent.settings import AgentSettings
from allocation.delivery import NodeDelivery, Toolkit, supported
from cluster.log_once import LogOnce

_OPERATOR: Final = Path("usr/local/nvidia/toolkit")
# Where the GPU Operator, then NVIDIA's packages, install the toolkit: its configuration, and its command. The
# operator's `nvidia-ctk` is a script around this program, and the agent's image has no shell.
_INSTALLATIONS: Final = (
    (_OPERATOR / ".config/nvidia-container-runtime/config.toml", _OPERATOR / "nvidia-ctk.real"),
    (Path("etc/nvidia-container-runtime/config.toml"), Path("usr/bin/nvidia-ctk")),
)
_NRI: Final = Path("var/run/nri")
_COMMAND_SECONDS: Final = 10.0

_problems: Final = LogOnce()


class DeliveryPlugin(Protocol):
    """The agent as a plugin of its node that gives containers their cards."""

    @property
    def is_registered(self) -> bool:
        """Whether containers get cards from it now."""

    def set_report(self, report: NodeReport) -> None:
        """Take the cards of the node."""

    async def run(self) -> None:
        """Stay registered until cancelled."""


def find(settings: AgentSettings, *, is_registered: bool | None = None) -> NodeDelivery:
    """Return the delivery of this node, with the facts that can be seen of it now.

    `is_registered` says whether the agent is a plugin that delivers cards; None if it is not to be.
    """
    root = Path(settings.host_root)
    toolkit = _toolkit(root)
    mode = supported(toolkit) if settings.delivery == "auto" else settings.delivery
    socket_folder = root / _NRI
    has_socket = (socket_folder / "nri.sock").exists() if socket_folder.is_dir() else None
    return NodeDelivery(mode, toolkit, has_socket, is_registered)


def _toolkit(root: Path) -> Toolkit | None:
    """Return the first toolkit that is installed, or None if none is visible or its configuration cannot be read."""
    for configuration, command in _INSTALLATIONS:
        path = root / configuration
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            _problems.report(str(path), f"not read: {error}; assuming the default delivery")
            return None
        _problems.report(str(path), "")
        return read_toolkit(content, version=_version(root / command))
    return None


def read_toolkit(content: dict[str, Any], *, version: str) -> Toolkit:
    """Return the toolkit that the tables of a config.toml describe; NVIDIA's defaults apply to missing keys."""
    runtime = _table(content, "nvidia-container-runtime")
    kind = _table(_table(runtime, "modes"), "cdi").get("default-kind", "")
    return Toolkit(
        mode=str(runtime.get("mode", "auto")),
        version=version,
        default_kind=str(kind),
        accepts_variable=content.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True) is not False,
    )


def _table(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key, {})
    return value if isinstance(value, dict) else {}


def _version(command: Path) -> str:
    """Return the version that a command prints; empty if it does not run here."""
    try:
        return _printed_version(command, command.stat().st_mtime_ns)
    except OSError:
        return ""


@functools.lru_cache(8)
def _printed_version(command: Path, _modified: int) -> str:
    """Return the version of a command, which changes only with its file."""
    try:
        done = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"\bversion v?(\d+\.\d+\.\d+)", done.stdout)
    return match[1] if match else ""
