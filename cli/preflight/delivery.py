"""Findings about how a node delivers cards to containers, by what its agent and the GPU Operator's objects say."""

from collections.abc import Iterator

import msgspec

from allocation import fractions
from allocation.delivery import BY_THE_AGENT, NodeDelivery, problem
from cli.preflight.findings import Finding
from cli.preflight.nvidia_software import OperatorToolkit
from cli.preflight.observed_node import ObservedNode


def evaluate(observed: ObservedNode, *, runtime_class_name: str) -> Iterator[Finding]:
    """Return what prevents containers on a node from getting their cards, and what would correct it.

    Args:
        observed: the node.
        runtime_class_name: the RuntimeClass that admission writes into GPU pods, or empty.
    """
    reported, operator = observed.delivery, observed.software.operator
    if reported is None:
        return
    known = reported
    if reported.toolkit is None and operator is not None:
        known = msgspec.structs.replace(reported, toolkit=operator.toolkit)
    if found := problem(reported) or fractions.problem(reported, observed.node.status.conditions):
        what = f"it takes no pods, because it cannot deliver cards: {found.message}"
        yield observed.finding("blocks", what, found.remedy)
    elif reported.mode in BY_THE_AGENT:  # whatever NVIDIA's software is there
        return
    elif operator is not None and operator.has_nri_plugin != (reported.mode == "nvidia-nri"):
        yield _wrong_mechanism(observed, reported, operator)
    elif operator is not None and (found := problem(known)):
        what = f"containers there would not get their cards, by {operator.source}: {found.message}"
        yield observed.finding("blocks", what, found.remedy)
    else:
        yield from _unconfirmed(observed, known, runtime_class_name)


def _wrong_mechanism(observed: ObservedNode, reported: NodeDelivery, operator: OperatorToolkit) -> Finding:
    """Return the finding about a node where either NVIDIA's NRI plugin or the delivery by it is missing."""
    if operator.has_nri_plugin:
        return observed.finding(
            "blocks",
            f"agent.delivery is {reported.mode}, but by {operator.source} the GPU Operator's NRI plugin runs there"
            " instead of NVIDIA's runtime: containers start without their cards",
            "add the component manifests/nvidia-nri (Helm: --set delivery.nvidiaNri=true), or GPU Operator:"
            " --set cdi.nriPluginEnabled=false",
        )
    return observed.finding(
        "blocks",
        f"agent.delivery is nvidia-nri, but by {operator.source} the GPU Operator's NRI plugin does not run there:"
        " nothing reads the annotations, and containers start without their cards",
        "GPU Operator: --set cdi.nriPluginEnabled=true, or remove the component manifests/nvidia-nri"
        " (Helm: --set delivery.nvidiaNri=false)",
    )


def _unconfirmed(observed: ObservedNode, known: NodeDelivery, runtime_class_name: str) -> Iterator[Finding]:
    """Return what may be missing for a delivery that nothing contradicts."""
    operator, toolkit = observed.software.operator, known.toolkit
    if known.mode == "nvidia-nri":
        if operator is None:
            yield observed.finding(
                "notes",
                "no object confirms that the GPU Operator's NRI plugin runs there",
                "GPU Operator: --set cdi.nriPluginEnabled=true",
            )
    elif toolkit is None:
        yield observed.finding(
            "notes",
            "neither its agent nor an object of the GPU Operator shows NVIDIA's container toolkit: nothing confirms"
            f" that delivery {known.mode} works",
            "add the component manifests/delivery to your overlay (Helm: --set delivery.hostFacts=true;"
            " docs/agent.md#delivery)",
        )
    elif (
        toolkit.mode == "cdi" and not runtime_class_name and not (operator is not None and operator.is_default_runtime)
    ):
        yield observed.finding(
            "changes",
            f"{toolkit} is usually not the default runtime, and admission writes no RuntimeClass into GPU pods: without"
            " NVIDIA's runtime a container starts without its cards",
            "set webhook.runtime_class_name to nvidia (Helm: --set runtimeClassName=nvidia), or make it the default"
            " (GPU Operator: --set toolkit.env[0].name=NVIDIA_RUNTIME_SET_AS_DEFAULT"
            " --set-string toolkit.env[0].value=true)",
        )
