"""Delivery: how a node's container runtime gets the cards of an allocation into a container, and what would prevent it.

- `env`: bare UUIDs in `NVIDIA_VISIBLE_DEVICES`, for NVIDIA's container toolkit in legacy mode or before 1.15;
- `cdi`: qualified CDI names in that variable, of which the toolkit makes the CDI specification itself;
- `nvidia-nri`: an annotation for the NRI plugin of NVIDIA's GPU Operator (`cdi.nriPluginEnabled`), where containers run
  without NVIDIA's runtime.

A node's agent reports its delivery; the scheduler writes a pod's annotations accordingly, together with the Binding.
"""

import re
from typing import Final, Literal, get_args

import msgspec

Delivery = Literal["env", "cdi", "nvidia-nri"]
DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)
DEFAULT: Final[Delivery] = "cdi"

LONGEST_NRI_CONTAINER_NAME: Final = 53
"""The name part of an annotation key has 63 characters, of which `container.` takes ten."""

_FIRST_WITH_QUALIFIED_NAMES: Final = (1, 15)
_LEGACY: Final = "legacy"
_CDI: Final = "cdi"
_MANAGEMENT: Final = "management.nvidia.com/gpu"


class Toolkit(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """NVIDIA's container toolkit on a node, as its configuration describes it.

    Attributes:
        mode: the mode of its runtime: `auto`, `legacy`, `cdi` or `jit-cdi`.
        version: such as `1.18.0`; empty if unknown.
        default_kind: the CDI kind of an unqualified name in mode `cdi`; empty if not configured.
        accepts_variable: whether containers without privileges get cards by `NVIDIA_VISIBLE_DEVICES`.
    """

    mode: str = "auto"
    version: str = ""
    default_kind: str = ""
    accepts_variable: bool = True

    @property
    def resolves_qualified_names(self) -> bool:
        """Whether it makes CDI specifications for names such as `runtime.nvidia.com/gpu=GPU-…`."""
        match = re.match(r"v?(\d+)\.(\d+)", self.version)
        is_older = match is not None and (int(match[1]), int(match[2])) < _FIRST_WITH_QUALIFIED_NAMES
        return self.mode != _LEGACY and not is_older

    @property
    def resolves_bare_uuids(self) -> bool:
        """Whether it finds a card by its UUID alone; the GPU Operator's default kind lists no single card."""
        return self.mode != _CDI or self.default_kind not in ("", _MANAGEMENT)

    def __str__(self) -> str:
        """Return it as messages name it: `NVIDIA's container toolkit 1.18.0 in mode cdi`."""
        return f"NVIDIA's container toolkit{self.version and f' {self.version}'} in mode {self.mode}"


class NodeDelivery(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """`status.delivery` of a GpuNodeStatus: the delivery of a node, and the facts that its agent could see.

    Attributes:
        mode: how containers get their cards.
        toolkit: NVIDIA's container toolkit; None if the agent does not see its configuration.
        has_nri_socket: whether the container runtime accepts NRI plugins; None if the agent does not see its folder.
    """

    mode: Delivery
    toolkit: Toolkit | None = None
    has_nri_socket: bool | None = None


class DeliveryProblem(msgspec.Struct, frozen=True):
    """Why containers would not get their cards on a node, and what to change."""

    message: str
    remedy: str


def supported(toolkit: Toolkit | None) -> Delivery:
    """Return the delivery that a toolkit supports, or the default for an unknown one."""
    return DEFAULT if toolkit is None or toolkit.resolves_qualified_names else "env"


def problem(node: NodeDelivery) -> DeliveryProblem | None:
    """Return why the delivery of a node cannot work by the facts that its agent reports, or None."""
    if node.mode == "nvidia-nri":
        return _NO_NRI_SOCKET if node.has_nri_socket is False else None
    toolkit = node.toolkit
    if toolkit is None:
        return None
    if not toolkit.accepts_variable:
        return DeliveryProblem(
            f"{toolkit} ignores NVIDIA_VISIBLE_DEVICES in containers without privileges:"
            " accept-nvidia-visible-devices-envvar-when-unprivileged is false",
            "GPU Operator: --set toolkit.env[0].name=ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
            " --set-string toolkit.env[0].value=true; without it: nvidia-ctk config --in-place"
            " --set accept-nvidia-visible-devices-envvar-when-unprivileged=true",
        )
    if node.mode == "cdi" and not toolkit.resolves_qualified_names:
        return DeliveryProblem(
            f"{toolkit} does not resolve CDI names in NVIDIA_VISIBLE_DEVICES: containers would not start",
            "set agent.delivery to env or auto (Helm: --set config.agent.delivery=env), or upgrade the toolkit to 1.15"
            " or newer and use mode auto or cdi",
        )
    if node.mode == "env" and not toolkit.resolves_bare_uuids:
        return DeliveryProblem(
            f"{toolkit} does not resolve bare UUIDs in NVIDIA_VISIBLE_DEVICES: containers would not start",
            "set agent.delivery to cdi or auto (Helm: --set config.agent.delivery=cdi)",
        )
    return None


_NO_NRI_SOCKET: Final = DeliveryProblem(
    "the container runtime accepts no NRI plugins: /var/run/nri/nri.sock does not exist, so annotations have no effect",
    "enable NRI in the container runtime (containerd 2 does by default) and install the GPU Operator with"
    " --set cdi.nriPluginEnabled=true, or set agent.delivery to auto",
)
