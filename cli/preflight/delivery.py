"""Findings about how a node delivers cards to containers, by the facts that its agent reports."""

from collections.abc import Iterator

from allocation.delivery import NodeDelivery, problem
from cli.preflight.findings import Finding


def evaluate(node: str, delivery: NodeDelivery, *, runtime_class_name: str) -> Iterator[Finding]:
    """Return what prevents containers on `node` from getting their cards, and what would correct it.

    Args:
        node: its name.
        delivery: what its agent reports.
        runtime_class_name: the RuntimeClass that admission writes into GPU pods, or empty.
    """
    subject = (f"node {node}",)
    if found := problem(delivery):
        yield Finding(
            "blocks", subject, f"it takes no pods, because it cannot deliver cards: {found.message}", found.remedy
        )
    if delivery.mode == "nvidia-nri":
        return
    toolkit = delivery.toolkit
    if toolkit is None:
        yield Finding(
            "notes",
            subject,
            f"its agent does not see NVIDIA's container toolkit: nothing confirms that delivery {delivery.mode} works",
            "add the component manifests/delivery to your overlay (docs/agent.md#delivery)",
        )
    elif toolkit.mode == "cdi" and not runtime_class_name:
        yield Finding(
            "changes",
            subject,
            f"{toolkit} is usually not the default runtime, and admission writes no RuntimeClass into GPU pods: without"
            " NVIDIA's runtime a container starts without its cards",
            "set webhook.runtime_class_name to nvidia, unless it is the default (GPU Operator:"
            " --set toolkit.env[0].name=CONTAINERD_SET_AS_DEFAULT --set-string toolkit.env[0].value=true)",
        )
