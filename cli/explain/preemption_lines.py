"""A line about preemption: which pods a waiting pod would preempt, what is held for it, or why it preempts none."""

from scheduler.api.explanation_types import Explanation
from scheduler.api.preemption_types import PreemptionExplanation

_NAMED = 5


def of_pod(explanation: Explanation) -> list[str]:
    """Return the line; none for a pod that does not wait for others to go."""
    preemption = explanation.preemption
    return [f"preemption: {_said(preemption)}"] if preemption is not None else []


def _said(preemption: PreemptionExplanation) -> str:
    if preemption.why:
        return f"no candidates, because {preemption.why}"
    if preemption.held:
        why = "pods are evicted for it" if preemption.held == "preemption" else "it has waited for long"
        return (
            f"cards of node {preemption.node} are held for it, because {why}; {_pods(preemption.leaving)} there"
            f" {'has' if preemption.leaving == 1 else 'have'} to end first"
        )
    if not preemption.count:
        return f"none, because enough pods of node {preemption.node} are being deleted"
    named = [f"{each.namespace}/{each.name} (priority {each.priority})" for each in preemption.victims[:_NAMED]]
    others = preemption.count - len(named)
    if others:
        named.append(f"{others} more" if named else "of other namespaces")
    return f"would evict {_pods(preemption.count)} for it, then on node {preemption.node}: {', '.join(named)}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"
