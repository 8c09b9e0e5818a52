"""`kubectl gpu env`: what a pod's containers are told about their cards."""

import argparse

from cli import environment
from cli.environment import PodEnvironment
from cli.errors import CommandError
from cli.objects import Pod
from cli.session import Session
from cli.tables import note, render
from cluster.errors import NotFoundError
from cluster.resource import PODS


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the variables of a pod, or of one of its containers."""
    name = arguments.pod.removeprefix("pods/").removeprefix("pod/")
    known = environment.of_pod(_pod(session, name))
    spoken = f"pod {known.namespace}/{known.pod}"
    if arguments.container and not any(container.name == arguments.container for container in known.containers):
        names = ", ".join(container.name for container in known.containers)
        raise CommandError(f"{spoken} has no container {arguments.container}; it has {names}")
    if not known.refers:
        raise CommandError(
            f"{spoken} has no GPU variables of ours: it asks for no GPU, or it was created where injection is off; "
            "label the namespace gpu.scheduling/injection=enabled and create the pod anew"
        )
    _explain(known, spoken)
    shown = known.only(arguments.container) if arguments.container else known
    table = shown.table(wide=arguments.output == "wide")
    print(render(shown, table, output=arguments.output, headers=not arguments.no_headers), end="")
    return 0


def _explain(known: PodEnvironment, spoken: str) -> None:
    """Say why the variables are empty, where they are."""
    if known.resolved:
        return
    if not known.node:
        look = f"kubectl describe pod -n {known.namespace} {known.pod}"
        note(f"{spoken} has not been placed yet, so its variables are empty; see '{look}'")
    else:
        note(f"{spoken} was bound to node {known.node} without an allocation: it sees no GPU; create it anew")


def _pod(session: Session, name: str) -> Pod:
    try:
        return session.client.get(PODS, Pod, name=name, namespace=session.namespace)
    except NotFoundError:
        raise CommandError(
            f"pod {session.namespace}/{name} does not exist; see 'kubectl get pods -n {session.namespace}'"
        ) from None
