"""The settings of the agent."""

from typing import Annotated, Literal

import msgspec

from allocation.delivery import Delivery

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Interval = Annotated[float, msgspec.Meta(ge=0)]
WholeSeconds = Annotated[int, msgspec.Meta(gt=0)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Slots = Annotated[int, msgspec.Meta(gt=0)]
Scaling = Annotated[float, msgspec.Meta(gt=0, le=100)]
MiB = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

ResourceName = Annotated[
    str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]


class DefaultCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The properties of a card that `CUDA_VISIBLE_DEVICES` names, on a node without NVML.

    Attributes:
        memory_mib: its memory; 0 means that it is unknown, and such cards are not reported.
        model: its name.
    """

    memory_mib: MiB = 0
    model: str = ""


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's section of the configuration file.

    Attributes:
        node_name: the node that this agent serves; empty means `$NODE_NAME`, and if that is unset, every node of the
            fleet file, which is how a lab simulates a fleet.
        fleet_file: the YAML file that declares the cards of each node (`agent.declared.fleet`); empty means that the
            agent reads the hardware.
        default_card: the properties of cards that `CUDA_VISIBLE_DEVICES` names, on a node without NVML.
        slots: how many containers may share a card that no fleet file declares.
        memory_scaling: the reported memory of a card that NVML describes, as a multiple of its actual memory; set it
            above 1 only if a limiter swaps. A card in MIG mode is never scaled.
        core_scaling: the same for its compute.
        publish_seconds: the interval between two readings of the inventory. A critical event causes one at once.
        probe_seconds: how long NVML may take to respond for a card before the card becomes unhealthy.
        quiet_seconds: how long an unhealthy card must be free of errors before it becomes healthy again, and the
            interval between two attempts to find a missing card.
        mig_instances_by: who creates MIG instances on this node's cards in MIG mode: with `administrator` the agent
            leaves them as they are, with `agent` it creates further ones that the scheduler requests. NVML requires a
            privileged process for that.
        measure_seconds: the interval between two measurements of what containers really use; 0 measures nothing.
        ignored_xids: XIDs that applications cause, and that do not affect the health of the card.
        sysfs: the mount point of sysfs, from which the agent reads the NUMA node of a card and the network adapters.
        procfs: the mount point of procfs, from which it reads whether GPUDirect Storage can be used (`agent.fabric`).
        hami_core_library: HAMi-core's library, as the agent sees it; isolation `hami-core` is offered if it can be read
            (`agent.isolation`). Empty withholds it. With `delivery: nri` it is loaded into the containers of pods that
            chose it, so the agent must see it under its path on the host.
        mps_pipe_directory: the pipe directory of the MPS daemon; `mps` is offered if the daemon answers there. Empty
            withholds it. With `delivery: nri` it is mounted into the containers of pods that chose `mps`.
        mps_shared_memory: the shared memory of that daemon on the host, which `delivery: nri` mounts as their
            `/dev/shm`; empty leaves them their own.
        mps_program: the control daemon that `agent.mps_daemon` runs in the foreground.
        mps_arguments: further arguments of it.
        mps_log_directory: where that daemon and its servers write logs.
        delivery: how containers of this node get their cards (`allocation.delivery`); `auto` chooses what the node's
            container toolkit supports, or `cdi` if the agent does not see the toolkit.
        nri_socket: where the node's container runtime accepts plugins, for `delivery: nri`.
        nri_files: a folder of the host for what the agent mounts into containers; it sees it under the same path.
        memory_limits: who sets the driver's limits of containers with isolation `cuda`: NVIDIA's container toolkit when
            it creates them, or with `delivery: nri` the agent, for which it must be privileged.
        device_plugin_resource: the extended resource that the kubelet advertises, for `delivery: device-plugin`: the
            one by which pods request a number of cards.
        device_plugin_folder: the kubelet's folder for device plugins, which has this path whatever its root is.
        pod_resources_socket: where the kubelet lists the devices of containers.
        allocator: who gives out this node's cards (docs/dra.md): the scheduler by its `ledger`, or Kubernetes by `dra`;
            with `label` it is `dra` on nodes whose label `gpu.scheduling/allocator` says so.
        dra_settle_seconds: for how long kube-scheduler may still decide by an earlier state of a ResourceSlice: a node
            that comes back from DRA waits for so long after its devices are closed, and after its slice is gone.
        dra_plugin_folder: where the socket of the agent as the kubelet's DRA plugin is, under its path on the host.
        dra_registration_folder: the kubelet's folder for the registration of plugins.
        cdi_folder: where the container runtime reads CDI specifications, for those of claims.
        host_root: where folders of the host are mounted, by which the agent finds out about the container toolkit.
        heartbeat_lease_seconds: how long a node's heartbeat is valid; the agent renews it three times in that time.
        identity: the holder of the heartbeat; empty means `$POD_NAME`, and if that is unset, the name of the host.
        metrics_address: the address on which health and metrics are served; empty means every address.
        metrics_port: the port of health and metrics; 0 means any free port, which is logged.
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
    mig_instances_by: Literal["administrator", "agent"] = "administrator"
    measure_seconds: Interval = 15.0
    ignored_xids: tuple[int, ...] = (13, 31, 43, 45, 68, 109)
    sysfs: str = "/sys"
    procfs: str = "/proc"
    hami_core_library: str = "/usr/local/vgpu/libvgpu.so"
    mps_pipe_directory: str = "/tmp/nvidia-mps"  # noqa: S108 -- it is CUDA's default
    mps_shared_memory: str = ""
    mps_program: str = "nvidia-cuda-mps-control"
    mps_arguments: tuple[str, ...] = ()
    mps_log_directory: str = "/var/log/nvidia-mps"
    delivery: Literal["auto"] | Delivery = "auto"
    nri_socket: str = "/var/run/nri/nri.sock"
    nri_files: str = "/run/tranche"
    memory_limits: Literal["toolkit", "agent"] = "toolkit"
    device_plugin_resource: ResourceName = "nvidia.com/gpu"
    device_plugin_folder: str = "/var/lib/kubelet/device-plugins"
    pod_resources_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    allocator: Literal["ledger", "dra", "label"] = "ledger"
    dra_settle_seconds: Seconds = 10.0
    dra_plugin_folder: str = "/var/lib/kubelet/plugins/gpu.scheduling"
    dra_registration_folder: str = "/var/lib/kubelet/plugins_registry"
    cdi_folder: str = "/var/run/cdi"
    host_root: str = "/host"
    heartbeat_lease_seconds: WholeSeconds = 60
    identity: str = ""
    metrics_address: str = ""
    metrics_port: Port = 9090
