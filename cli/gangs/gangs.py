"""`kubectl gpu gangs`: which pods get nodes together, and what they wait for."""

import argparse
import time

from cli.errors import CommandError, MissingPackageError, MissingRightError
from cli.gangs import tables
from cli.installation import rules
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.tables import note, render
from scheduler.api.gang_types import GangsView


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the gangs of a namespace or of all, or the pods of one."""
    name, namespace = arguments.gang or "", "" if arguments.all_namespaces else session.namespace
    if arguments.scheduler_url:
        view = _own(session, arguments, instead=None)
    else:
        view = _of_api_server(session, arguments, namespace=namespace)
    where = f"in namespace {namespace}" if namespace else "in any namespace"
    if name and not view.gangs:
        raise CommandError(
            f"gang {name} does not exist {where}; 'kubectl gpu gangs -A' shows the gangs of all namespaces"
        )
    if not view.gangs:
        note(f"no pod belongs to a gang {where}")
    wide, now = arguments.output == "wide", time.time() + session.client.clock_ahead
    table = tables.of_members(view.gangs[0]) if name and namespace else tables.of_gangs(view, now=now, wide=wide)
    if name and namespace and arguments.output in ("table", "wide"):
        print("\n".join([*tables.about(view.gangs[0]), ""]))
    print(render(view, table, output=arguments.output, headers=not arguments.no_headers), end="", flush=True)
    return 0


def _of_api_server(session: Session, arguments: argparse.Namespace, *, namespace: str) -> GangsView:
    """Return the gangs by what the API server shows; if that is not possible, by what the scheduler says."""
    try:
        from cli.gangs import cluster_gangs  # noqa: PLC0415 -- it needs numpy
    except ModuleNotFoundError as error:
        return _own(session, arguments, instead=MissingPackageError(error))
    effective_rules = rules.read(arguments.config, session.client)
    try:
        view = cluster_gangs.read(session.client, effective_rules, namespace=namespace, name=arguments.gang or "")
    except MissingRightError as error:
        return _own(session, arguments, instead=error)
    effective_rules.note_gaps()
    return view


def _own(
    session: Session, arguments: argparse.Namespace, *, instead: MissingRightError | MissingPackageError | None
) -> GangsView:
    """Return the gangs of the namespace from the scheduler's API, all pages."""
    if arguments.all_namespaces:
        raise instead or CommandError("the scheduler shows the gangs of one namespace at a time: omit -A")
    api = SchedulerApi(session.access, url=arguments.scheduler_url, instead=instead)
    page = api.gangs(session.namespace, name=arguments.gang or "")
    gangs = [*page.gangs]
    while page.next:
        page = api.gangs(session.namespace, after=page.next)
        gangs += page.gangs
    return GangsView(tuple(gangs))
