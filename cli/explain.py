"""`kubectl gpu explain`: why a pod waits, where it would go, or where it is."""

import argparse
from collections.abc import Collection

import msgspec

from cli import explanation_tables, scheduler_view
from cli.errors import CommandError
from cli.session import Session
from cli.tables import render
from cluster.errors import NotFoundError
from cluster.resource import PODS
from scheduler import explanation
from scheduler.explanation_api import Explanation
from scheduler.objects import Pod


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print why a pod is where it is, or waits."""
    name = arguments.pod.removeprefix("pods/").removeprefix("pod/")
    pod = _pod(session, name)
    state = scheduler_view.look(session, scheduler_view.rules(arguments.config, prog="kubectl gpu explain"))
    told = explanation.explain(state, pod, cards_of=cards_of(arguments))
    # How often a pod was tried only the scheduler knows that did it.
    told = msgspec.structs.replace(told, queue=None)
    print(text(told, arguments), end="")
    return 0


def cards_of(arguments: argparse.Namespace) -> Collection[str] | None:
    """Answer of which nodes the cards are wanted: those of all only where nobody has to read them."""
    if arguments.node:
        return (arguments.node,)
    return None if arguments.output in ("json", "yaml") else ()


def text(told: Explanation, arguments: argparse.Namespace) -> str:
    """Answer what is printed: a sentence, then nodes by reason, or the cards of one node.

    Raises:
        CommandError: there is no such node.
    """
    headers, wide = not arguments.no_headers, arguments.output == "wide"
    if arguments.output in ("json", "yaml"):
        return render(told, explanation_tables.of_nodes(told), output=arguments.output)
    asks = explanation_tables.asks(told)
    lines = [explanation_tables.sentence(told), *([f"it asks for: {asks}"] if asks else []), ""]
    if arguments.node:
        node = next((each for each in told.nodes if each.name == arguments.node), None)
        if node is None and told.nodes:
            raise CommandError(f"the cluster has no node {arguments.node}; see 'kubectl get nodes'")
        if node is not None:
            said = f"node {node.name} {'takes it' if node.fits else f'does not take it: {node.reason}'}"
            return "\n".join([*lines, said, explanation_tables.of_cards(node).text(headers=headers)])
    if told.shares:
        lines.append(explanation_tables.of_shares(told).text(headers=headers))
    if told.nodes:
        lines.append(explanation_tables.of_nodes(told, wide=wide).text(headers=headers))
    if told.policy is not None and told.outcome == "fits":
        lines += [
            f"nodes by {told.policy.nodes}",
            *([f"cards by {told.policy.cards}"] if told.policy.cards else []),
            "",
        ]
    return "\n".join(lines)


def _pod(session: Session, name: str) -> Pod:
    try:
        return session.client.get(PODS, Pod, name=name, namespace=session.namespace)
    except NotFoundError:
        raise CommandError(
            f"pod {session.namespace}/{name} does not exist; see 'kubectl get pods -n {session.namespace}'"
        ) from None
