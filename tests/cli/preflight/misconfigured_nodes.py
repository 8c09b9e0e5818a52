"""Five nodes whose containers would not get their cards, as the objects of a cluster, and what corrects each."""

from typing import Any, Final

import msgspec

from allocation.inventory import Card, NodeInventory
from cluster.gpu_node_status import status_of

GPU_LABEL: Final = "nvidia.com/gpu.present"
RUNTIME_CLASS: Final[dict[str, Any]] = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
    "scheduling": {"nodeSelector": {GPU_LABEL: "true"}},
}
OPERATOR: Final = "gpu-operator"
CDI: Final = {
    "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
    "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
    "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
}


class MisconfiguredNode(msgspec.Struct, frozen=True):
    """A node, NVIDIA's pods there, and what preflight must say.

    Attributes:
        name: the name of the node.
        delivery: what its agent reports.
        toolkit: the environment of the GPU Operator's toolkit pod.
        words: parts of the finding: the setting that is wrong, and the consequence.
        flag: what corrects it, ready to be copied.
        plugin: the environment of NVIDIA's device plugin, if it runs there.
        labels: the labels of the node.
        card_mode: the mode of its card.
    """

    name: str
    delivery: str
    toolkit: dict[str, str]
    words: tuple[str, ...]
    flag: str
    plugin: dict[str, str] = {}
    labels: dict[str, str] = msgspec.field(default_factory=lambda: {GPU_LABEL: "true"})
    card_mode: str = "hami-core"

    @property
    def node(self) -> dict[str, Any]:
        """The Node, whose kubelet advertises devices if the plugin runs there."""
        allocatable = {"pods": "110", **({"nvidia.com/gpu": "20"} if self.plugin else {})}
        metadata = {"name": self.name, "labels": self.labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}

    @property
    def status(self) -> dict[str, Any]:
        """The GpuNodeStatus of an agent that sees no configuration of the toolkit."""
        card = Card(uuid=f"GPU-{self.name}", index=0, memory_mib=40960, mode=self.card_mode, instances_by="agent")
        reported = msgspec.to_builtins(status_of(NodeInventory(self.name, (card,))))
        return {
            "apiVersion": "gpu.scheduling/v1",
            "kind": "GpuNodeStatus",
            "metadata": {"name": self.name},
            "spec": {"nodeName": self.name},
            "status": {**reported, "delivery": {"mode": self.delivery}},
        }

    @property
    def pods(self) -> list[dict[str, Any]]:
        """The pods of NVIDIA's DaemonSets."""
        toolkit = self._pod("nvidia-container-toolkit-daemonset", "k8s/container-toolkit:v1.18.0", self.toolkit)
        plugin = self._pod("nvidia-device-plugin-daemonset", "k8s-device-plugin:v0.18.0", self.plugin)
        return [toolkit, plugin] if self.plugin else [toolkit]

    def _pod(self, daemon_set: str, image: str, environment: dict[str, str]) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": f"nvcr.io/nvidia/{image}",
            "env": [{"name": name, "value": value} for name, value in environment.items()],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{daemon_set}-{self.name}", "namespace": OPERATOR, "labels": {"app": daemon_set}},
            "spec": {"nodeName": self.name, "automountServiceAccountToken": False, "containers": [container]},
        }


MISCONFIGURED: Final = (
    MisconfiguredNode(
        "bare-uuids",
        "env",
        CDI,
        ("toolkit 1.18.0 in mode cdi does not resolve bare UUIDs", "containers would not start"),
        "--set config.agent.delivery=cdi",
    ),
    MisconfiguredNode(
        "uncovered",
        "cdi",
        CDI,
        (
            "RuntimeClass nvidia",
            "requires nvidia.com/gpu.present=true by scheduling.nodeSelector",
            "no GPU pod is placed",
        ),
        "kubectl label node uncovered nvidia.com/gpu.present=true",
        labels={"gpu": "on"},
    ),
    MisconfiguredNode(
        "nri",
        "cdi",
        {**CDI, "ENABLE_NRI_PLUGIN": "true"},
        ("agent.delivery is cdi", "NRI plugin runs there", "containers start without their cards"),
        "--set delivery.nvidiaNri=true",
    ),
    MisconfiguredNode(
        "refusing",
        "cdi",
        {**CDI, "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false"},
        (
            "accept-nvidia-visible-devices-envvar-when-unprivileged is false",
            "containers there would not get their cards",
        ),
        "--set toolkit.env[0].name=ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED",
    ),
    MisconfiguredNode(
        "plugin",
        "cdi",
        CDI,
        ("DEVICE_LIST_STRATEGY", "cdi-annotations,cdi-cri", "containers see cards of other pods"),
        "--set devicePlugin.enabled=false",
        plugin={"DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri"},
    ),
)
