"""Removes from responses what users with rights in only one namespace must not see.

They see which cards their pod could get and the reasons of the others, but neither names nor amounts of other users'
pods, nor their GPUBindings and shares, nor which PersistentVolumes are free. The names, models and sizes of nodes and
cards are not secret.
"""

import msgspec

from allocation.reasons import public_coded_text
from scheduler.api import consolidation_types, preemption_explanation
from scheduler.api.capacity_types import CapacityView
from scheduler.api.explanation_types import Amount, CardExplanation, Explanation, NodeExplanation
from scheduler.api.simulation_types import GpuSchedulerState, NodeToStatus, Simulation
from scheduler.api.topology_explanation import without_pods


def of_explanation(explanation: Explanation) -> Explanation:
    """Remove how full cards and nodes are (free amounts, scores), and the names of other pods and bindings.

    The pods that have cards of the pod's application are in its namespace, so they stay.
    """
    bindings, queue = explanation.bindings, explanation.gpu_queue
    preemption, consolidation, own = explanation.preemption, explanation.consolidation, explanation.namespace
    return msgspec.structs.replace(
        explanation,
        note="" if explanation.outcome == "fits" else explanation.note,  # the note of a pod that fits has scores
        nodes=tuple(_node(node) for node in explanation.nodes),
        topology=tuple(without_pods(each) for each in explanation.topology),
        bindings=msgspec.structs.replace(bindings, others=()) if bindings is not None else None,
        preemption=preemption_explanation.within(preemption, own) if preemption is not None else None,
        consolidation=consolidation_types.within(consolidation, own) if consolidation is not None else None,
        gpu_queue=msgspec.structs.replace(queue, ahead=None) if queue is not None else None,
        reasons=tuple(
            msgspec.structs.replace(group, reason=public_coded_text(group.code, group.reason))
            for group in explanation.reasons
        ),
        claims=tuple(
            msgspec.structs.replace(claim, volume="") if claim.state == "unbound" else claim
            for claim in explanation.claims
        ),
    )


def of_simulation(simulation: Simulation) -> Simulation:
    """Remove the same from a simulation."""
    error = simulation.error
    if error is not None and error.diagnosis is not msgspec.UNSET:
        # A node that does not take the pod as a whole has one reason; messages about cards name no pods.
        nodes = {
            name: msgspec.structs.replace(status, message=public_coded_text(status.reasons[0], status.message))
            for name, status in error.diagnosis.node_to_status.nodes.items()
        }
        diagnosis = msgspec.structs.replace(error.diagnosis, node_to_status=NodeToStatus(nodes))
        error = msgspec.structs.replace(error, diagnosis=diagnosis)
    return msgspec.structs.replace(
        simulation,
        error=error,
        gpu_scheduler_state=GpuSchedulerState(final_gpus=simulation.gpu_scheduler_state.final_gpus),
        explanation=of_explanation(simulation.explanation) if simulation.explanation is not None else None,
    )


def of_capacity(view: CapacityView) -> CapacityView:
    """Remove on which nodes pods fit, which shows how full each is, and what is stranded."""
    largest = view.largest
    return CapacityView(
        tuple(msgspec.structs.replace(shape, nodes=()) for shape in view.shapes),
        msgspec.structs.replace(largest, node="") if largest is not None else None,
    )


def _node(node: NodeExplanation) -> NodeExplanation:
    return msgspec.structs.replace(
        node,
        reason=public_coded_text(node.code, node.reason),
        score=None,
        scores={},
        cards=tuple(_card(card) for card in node.cards),
        topology=tuple(without_pods(each) for each in node.topology),
    )


def _card(card: CardExplanation) -> CardExplanation:
    return msgspec.structs.replace(
        card,
        memory_mib=_size(card.memory_mib),
        cores=_size(card.cores),
        slots=_size(card.slots),
        tflops=_size(card.tflops),
        verdicts=tuple(msgspec.structs.replace(verdict, score=None) for verdict in card.verdicts),
    )


def _size(amount: Amount) -> Amount:
    return Amount(None, amount.total)
