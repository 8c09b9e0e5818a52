"""`kubectl gpu queues`: what each queue has, is entitled to, and waits for."""

import argparse

from cli.errors import CommandError, MissingPackageError
from cli.installation import rules
from cli.kube.session import Session
from cli.queues import tables
from cli.tables import note, render
from cluster.resource import GPU_QUEUES


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print one queue, those of a namespace, or all."""
    try:
        from cli.queues import cluster_queues, notes  # noqa: PLC0415 -- they need numpy
    except ModuleNotFoundError as error:
        raise MissingPackageError(error) from None
    effective_rules = rules.read(arguments.config, session.client)
    state = cluster_queues.read(session, effective_rules)
    effective_rules.note_gaps()
    view = cluster_queues.view(
        state,
        name=arguments.queue or "",
        namespace="" if arguments.all_namespaces else arguments.namespace,
    )
    if arguments.queue and not view.queues:
        raise CommandError(f"queue {arguments.queue} does not exist; 'kubectl gpu queues' shows all queues")
    if arguments.output == "name":
        defined = (each.name for each in view.queues if each.exists and "/" not in each.name)
        print("".join(f"gpuqueue.{GPU_QUEUES.group}/{name}\n" for name in defined), end="")
        return 0
    table = tables.of_queues(view, wide=arguments.output == "wide")
    print(render(view, table, output=arguments.output, headers=not arguments.no_headers), end="", flush=True)
    if arguments.output in ("table", "wide"):
        for text in notes.of_queues(view, state):
            note(text)
    return 0
