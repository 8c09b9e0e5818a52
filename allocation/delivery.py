"""Delivery: how a node's container runtime gets the cards of an allocation into a container, and what would prevent it.

- `env`: bare UUIDs in `NVIDIA_VISIBLE_DEVICES`, for NVIDIA's container toolkit in legacy mode or before 1.15;
- `cdi`: qualified CDI names in that variable, of which the toolkit makes the CDI specification itself;
- `nvidia-nri`: an annotation for the NRI plugin of NVIDIA's GPU Operator (`cdi.nriPluginEnabled`), where containers run
  without NVIDIA's runtime;
- `nvfractions`: annotations for kai-gpu-fractioning, which limits the memory of containers as it gives them their cards
  by NVIDIA's runtime;
- `nri`: nothing but the allocation. The agent itself is a plugin of the container runtime and gives containers their
  cards, or keeps them from starting (`agent.nri`);
- `device-plugin`: nothing but the allocation, either. The kubelet advertises devices of the cards as a resource and
  gives containers those that the agent names (`agent.device_plugin`).

A node's agent reports its delivery; the scheduler writes a pod's annotations accordingly, together with the Binding.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

import msgspec

Delivery = Literal["env", "cdi", "nvidia-nri", "nvfractions", "nri", "device-plugin"]
DELIVERIES: Final[tuple[Delivery, ...]] = get_args(Delivery)
DEFAULT: Final[Delivery] = "cdi"
BY_THE_AGENT: Final[frozenset[Delivery]] = frozenset({"nri", "device-plugin"})
"""The deliveries in which the agent alone gives containers their cards."""

LONGEST_CONTAINER_NAME: Final[Mapping[Delivery, int]] = {"nvidia-nri": 53, "nvfractions": 33}
"""By delivery by annotation: the name part of a key has 63 characters, of which `container.` takes ten, and
`.gpu-compute.portion` another 20."""

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
        is_registered: whether the agent is a plugin of the container runtime, or of the kubelet, now; None in other
            modes than `nri` and `device-plugin`.
    """

    mode: Delivery
    toolkit: Toolkit | None = None
    has_nri_socket: bool | None = None
    is_registered: bool | None = None


class DeliveryProblem(msgspec.Struct, frozen=True):
    """Why containers would not get their cards on a node, and what to change."""

    message: str
    remedy: str


def supported(toolkit: Toolkit | None) -> Delivery:
    """Return the delivery that a toolkit supports, or the default for an unknown one."""
    return DEFAULT if toolkit is None or toolkit.resolves_qualified_names else "env"


def problem(node: NodeDelivery) -> DeliveryProblem | None:
    """Return why the delivery of a node cannot work by the facts that its agent reports, or None."""
    if node.mode in LONGEST_CONTAINER_NAME and node.has_nri_socket is False:
        return _NO_NRI_SOCKET
    if node.mode == "nvidia-nri":
        return None
    if node.mode == "nri":
        return _NOT_REGISTERED if node.is_registered is False else None
    if node.mode == "device-plugin":
        return _NOT_A_DEVICE_PLUGIN if node.is_registered is False else None
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
    if node.mode in ("cdi", "nvfractions") and not toolkit.resolves_qualified_names:
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
    "enable NRI in the container runtime (containerd 2 does by default) and install what reads them, the GPU Operator"
    " with --set cdi.nriPluginEnabled=true or kai-gpu-fractioning, or set agent.delivery to auto",
)

_NOT_REGISTERED: Final = DeliveryProblem(
    "its agent is not registered as a plugin of the container runtime, so containers would not get their cards",
    "read the agent's log there; enable NRI in the container runtime (containerd 2 does by default), and give the agent"
    " its socket with the component manifests/nri (Helm: --set delivery.nri=true)",
)

_NOT_A_DEVICE_PLUGIN: Final = DeliveryProblem(
    "its agent is not registered as a device plugin of the kubelet, so the kubelet would reject the pod",
    "read the agent's log there, and give the agent the kubelet's folders with the component manifests/device-plugin"
    " (Helm: --set delivery.devicePlugin=true)",
)
