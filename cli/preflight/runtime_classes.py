"""Findings about the RuntimeClass that admission writes into GPU pods: whether it exists, and covers each node."""

from collections.abc import Iterator

from cli.preflight.cluster_snapshot import ClusterSnapshot, RuntimeClass
from cli.preflight.findings import Finding
from cli.preflight.observed_node import ObservedNode


def missing(snapshot: ClusterSnapshot, *, name: str) -> Iterator[Finding]:
    """Return the finding about a class that does not exist, unless the check of the installation reports it.

    Args:
        snapshot: the objects of the cluster.
        name: the configured class, or empty.
    """
    is_checked = snapshot.liveness is not None and snapshot.liveness.installed
    if name and snapshot.runtime_class is None and snapshot.could_read("runtimeclasses") and not is_checked:
        yield Finding(
            "blocks",
            (f"RuntimeClass {name}",),
            "does not exist: admission would write it into GPU pods, which the API server then rejects",
            "install the GPU Operator, which creates it, or set webhook.runtime_class_name to nothing"
            " (Helm: --set runtimeClassName=)",
        )


def evaluate(observed: ObservedNode, runtime_class: RuntimeClass) -> Iterator[Finding]:
    """Return what keeps GPU pods, which name the class, from being placed on a node or from starting there."""
    name, labels = runtime_class.metadata.name, observed.labels
    selector = runtime_class.scheduling.node_selector if runtime_class.scheduling is not None else {}
    if lacking := [f"{key}={value}" for key, value in sorted(selector.items()) if labels.get(key) != value]:
        yield observed.finding(
            "blocks",
            f"no GPU pod is placed there: RuntimeClass {name}, which admission writes into them, requires"
            f" {', '.join(lacking)} by scheduling.nodeSelector",
            f"kubectl label node {observed.name} {' '.join(lacking)} --overwrite, or remove scheduling.nodeSelector"
            f" from RuntimeClass {name}",
        )
    handlers = {each.name for each in observed.node.status.runtime_handlers}
    if handlers and runtime_class.handler not in handlers:
        yield observed.finding(
            "blocks",
            f"its container runtime has no handler {runtime_class.handler}, which RuntimeClass {name} names: GPU pods"
            " do not start",
            "install NVIDIA's container toolkit there: GPU Operator: --set toolkit.enabled=true; without it: nvidia-ctk"
            " runtime configure --runtime=containerd, then restart containerd",
        )
