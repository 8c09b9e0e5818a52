"""What an administrator may decide about the agent."""

from typing import Annotated

import msgspec

Seconds = Annotated[float, msgspec.Meta(gt=0)]
WholeSeconds = Annotated[int, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Slots = Annotated[int, msgspec.Meta(gt=0)]
Scaling = Annotated[float, msgspec.Meta(gt=0, le=100)]
MiB = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class DefaultCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a card is taken to be that `CUDA_VISIBLE_DEVICES` counts and no NVML describes.

    Attributes:
        memory_mib: its memory; 0 means that nothing is assumed, so such cards are not reported.
        model: its name.
    """

    memory_mib: MiB = 0
    model: str = ""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's section of the configuration file.

    Attributes:
        node_name: the node that this agent serves; empty means `$NODE_NAME`, and without that every node of the
            fleet file, which is how a lab simulates a fleet.
        fleet_file: the YAML file that says which cards each node has (`agent.fleet`); empty means that the hardware is
            asked.
        default_card: see there.
        slots: how many containers may share a card that no fleet file describes.
        memory_scaling: how much memory a card that NVML describes is reported to have, as a multiple of what it has;
            more than 1 only where a limiter swaps. A card in MIG mode is never scaled.
        core_scaling: the same of its compute.
        publish_seconds: how often the inventory is read again. A critical event is acted upon at once.
        probe_seconds: how long NVML may take to answer for a card until the card is unhealthy.
        quiet_seconds: how long an unhealthy card must be without trouble until it is healthy again, and how long the
            agent waits between two attempts to find a missing card.
        ignored_xids: XIDs that say nothing of the card's health: they are an application's doing.
        sysfs: where the kernel's view of devices is mounted; it knows the NUMA node of a card.
        hami_core_library: HAMi-core's library on this node; the backend is reported where this file is.
        mps_pipe_directory: the pipe directory of the MPS daemon; the backend is reported where it is.
        heartbeat_lease_seconds: how long a node's heartbeat is valid; it is renewed three times as often.
        identity: who holds the heartbeat; empty means `$POD_NAME`, and without that the host's name.
        metrics_address: where health and metrics are served; empty means every address.
        metrics_port: the port of health and metrics; 0 means any that is free, which is logged.
    """

    node_name: str = ""
    fleet_file: str = ""
    default_card: DefaultCard = DefaultCard()
    slots: Slots = 10
    memory_scaling: Scaling = 1.0
    core_scaling: Scaling = 1.0
    publish_seconds: Seconds = 30.0
    probe_seconds: Seconds = 10.0
    quiet_seconds: Seconds = 60.0
    ignored_xids: tuple[int, ...] = (13, 31, 43, 45, 68, 109)
    sysfs: str = "/sys"
    hami_core_library: str = "/usr/local/vgpu/libvgpu.so"
    mps_pipe_directory: str = "/tmp/nvidia-mps"  # noqa: S108 -- it is CUDA's default
    heartbeat_lease_seconds: WholeSeconds = 60
    identity: str = ""
    metrics_address: str = ""
    metrics_port: Port = 9090
