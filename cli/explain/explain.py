"""`kubectl gpu explain`: where a pod is or would be placed, or why it waits."""

import argparse
from typing import Final

import msgspec

from cli.errors import CommandError
from cli.explain import evaluators, explanation_lines, explanation_tables
from cli.kube.pods_of import is_workload, pods_of
from cli.kube.session import Session
from cli.liveness.liveness import liveness_lines, with_liveness
from cli.tables import note, structured
from scheduler.api.explanation_types import Explanation
from scheduler.objects import Pod

_MOST: Final = 10
"""Pods of a workload that the formats for people show."""
_SETTLED: Final = ("bound", "binding", "finished")


class Explanations(msgspec.Struct, frozen=True):
    """What `kubectl gpu explain deploy/NAME -o json` prints."""

    items: tuple[Explanation, ...]


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Explain a pod, or each pod of a workload."""
    evaluator = evaluators.choose(session, arguments)
    pods = pods_of(session, arguments.pod, Pod)
    explanations = [evaluator.explain(pod) for pod in pods]
    if len(explanations) == 1 and not is_workload(arguments.pod):
        printed = structured(with_liveness(evaluator.alive, explanations[0]), output=arguments.output)
    else:
        # Waiting pods come first: they are the reason why people ask.
        explanations.sort(key=lambda each: (each.outcome in _SETTLED, each.pod))
        printed = structured(with_liveness(evaluator.alive, Explanations(tuple(explanations))), output=arguments.output)
    if printed is not None:
        print(printed, end="")
        return 0
    shown = [text(each, arguments) for each in explanations[:_MOST]]
    print("\n".join([*liveness_lines(evaluator.alive), *shown]), end="")
    if len(explanations) > _MOST:
        note(f"{len(explanations) - _MOST} more pods are not shown; -o json has all of them")
    return 0


def text(explanation: Explanation, arguments: argparse.Namespace) -> str:
    """Return a sentence about the pod, then its nodes by reason, or the cards of one node.

    Raises:
        CommandError: the node that `--node` names does not exist.
    """
    headers, wide = not arguments.no_headers, arguments.output == "wide"
    claim, requests = explanation_tables.claim(explanation), explanation_tables.requests(explanation)
    printed = [explanation_tables.sentence(explanation)]
    printed += [f"{word}: {said}" for word, said in (("GpuClaim", claim), ("requests", requests)) if said]
    printed += explanation_lines.of_queue(explanation)
    printed += explanation_lines.of_gang(explanation)
    printed += explanation_lines.of_bindings(explanation)
    printed += explanation_lines.of_topology(explanation)
    if explanation.quota:
        printed.append(f"{explanation.quota}; {explanation_lines.where_limits_are_shown(explanation)}")
    printed += explanation_lines.of_preemption(explanation)
    printed += explanation_lines.of_consolidation(explanation)
    printed += [f"resize: {explanation.resize}"] if explanation.resize else []
    printed += [*(f"hint: {hint}" for hint in explanation.hints), ""]
    if arguments.node:
        node = next((each for each in explanation.nodes if each.name == arguments.node), None)
        if node is None and explanation.nodes:
            raise CommandError(f"the cluster has no node {arguments.node}; see 'kubectl get nodes'")
        if node is not None:
            verdict = f"node {node.name} {'can take it' if node.fits else f'cannot take it: {node.reason}'}"
            lines = [] if node.chosen else explanation_lines.of_topology_on(node)
            return "\n".join(
                [*printed, verdict, *lines, explanation_tables.of_cards(node).text(headers=headers, wide=wide)]
            )
    printed += [table.text(headers=headers, wide=wide) for table in explanation_tables.of_bindings(explanation)]
    if explanation.shares:
        printed.append(explanation_tables.of_shares(explanation).text(headers=headers, wide=wide))
    if explanation.claims:
        printed.append(explanation_tables.of_claims(explanation).text(headers=headers, wide=wide))
    if explanation.nodes:
        printed.append(explanation_tables.of_nodes(explanation, wide=wide).text(headers=headers, wide=wide))
        lines = (
            explanation_lines.of_topology_rejections(explanation, wide=wide) if explanation.outcome == "waits" else []
        )
        printed += [*lines, ""] if lines else []
    if explanation.policy is not None and explanation.outcome == "fits":
        printed += [
            f"nodes by {explanation.policy.nodes}",
            *([f"cards by {explanation.policy.cards}"] if explanation.policy.cards else []),
            "",
        ]
    return "\n".join(printed)
