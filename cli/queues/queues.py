"""`kubectl gpu queues`: what each queue has, is entitled to, and waits for."""

import argparse

import msgspec

from cli.errors import CommandError, MissingPackageError, MissingRightError
from cli.installation import rules
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.queues import tables
from cli.tables import note, render
from cluster.resource import GPU_QUEUES
from scheduler.api.queue_types import QueuesView


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print one queue, those of a namespace, or all."""
    view, notes = _own(session, arguments, instead=None) if arguments.scheduler_url else _of_cluster(session, arguments)
    if arguments.queue and not view.queues:
        raise CommandError(f"queue {arguments.queue} does not exist; 'kubectl gpu queues' shows all queues")
    if arguments.output == "name":
        defined = (each.name for each in view.queues if each.exists and "/" not in each.name)
        print("".join(f"gpuqueue.{GPU_QUEUES.group}/{name}\n" for name in defined), end="")
        return 0
    table = tables.of_queues(view, wide=arguments.output == "wide")
    print(render(view, table, output=arguments.output, headers=not arguments.no_headers), end="", flush=True)
    if arguments.output in ("table", "wide"):
        for text in notes:
            note(text)
    return 0


def _of_cluster(session: Session, arguments: argparse.Namespace) -> tuple[QueuesView, list[str]]:
    """Return the queues and notes about them; without the right to read the cluster, those of the namespace."""
    try:
        from cli.queues import cluster_queues  # noqa: PLC0415 -- it needs numpy
    except ModuleNotFoundError as error:
        return _own(session, arguments, instead=MissingPackageError(error))
    effective_rules = rules.read(arguments.config, session.client)
    try:
        state = cluster_queues.read(session, effective_rules)
    except MissingRightError as error:
        return _own(session, arguments, instead=error)
    effective_rules.note_gaps()
    namespace = "" if arguments.all_namespaces else arguments.namespace
    view = cluster_queues.view(state, name=arguments.queue or "", namespace=namespace)
    return view, [*cluster_queues.notes(view, state)]


def _own(
    session: Session, arguments: argparse.Namespace, *, instead: MissingRightError | MissingPackageError | None
) -> tuple[QueuesView, list[str]]:
    """Return the queues that the pods of the namespace may use, from the scheduler's API."""
    if arguments.all_namespaces and instead is not None:
        raise instead
    view = SchedulerApi(session.access, url=arguments.scheduler_url, instead=instead).queues(session.namespace)
    if arguments.queue:
        queues = tuple(each for each in view.queues if each.name == arguments.queue)
        view = msgspec.structs.replace(view, queues=queues)
    return view, [*tables.notes(view)]
