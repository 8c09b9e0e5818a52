"""`kubectl gpu capacity`: how many more pods fit, and what is stranded."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from cli.capacity import tables
from cli.capacity.answer import Capacity
from cli.errors import CommandError, MissingPackageError, MissingRightError
from cli.explain import addition as added
from cli.explain.addition import Addition
from cli.explain.evaluator import manifests_of
from cli.installation import rules
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.liveness.installation_check import check_installation
from cli.liveness.liveness import Liveness, liveness_lines, require_installation, with_liveness
from cli.tables import structured
from cli.workloads import files
from cli.workloads.files import SourcedWorkload
from scheduler.api.capacity_types import CapacityView
from scheduler.api.request_body import Manifests

_Pods = Sequence[tuple[SourcedWorkload, Manifests]]


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print how many more pods fit of each shape."""
    workloads, claims = files.read(arguments.filename) if arguments.filename else ([], [])
    pods = [(each, manifests_of(each.workload, 0, claims, namespace=session.namespace)) for each in workloads]
    addition = added.read(arguments.with_node) if arguments.with_node else None
    alive, found = _answer(session, arguments, pods, addition)
    printed = structured(with_liveness(alive, found), output=arguments.output)
    if printed is None:
        for shape in found.now.shapes:
            for warning in shape.warnings:
                print(f"warning: {shape.name}: {warning}", file=sys.stderr)
        is_wide, headers = arguments.output == "wide", not arguments.no_headers
        printed = "".join(f"{line}\n" for line in liveness_lines(alive)) + tables.text(
            found, wide=is_wide, headers=headers, explains=bool(pods)
        )
    print(printed, end="", flush=True)
    return 0


def _answer(
    session: Session, arguments: argparse.Namespace, pods: _Pods, addition: Addition | None
) -> tuple[Liveness | None, Capacity]:
    """Return what this process counts with the scheduler's functions, or what the scheduler counts."""
    if arguments.scheduler_url:
        return None, _of_scheduler(SchedulerApi(session.access, url=arguments.scheduler_url), session, pods, addition)
    try:
        from cli.capacity import local_capacity  # noqa: PLC0415 -- it needs numpy
        from cli.explain import scheduler_state  # noqa: PLC0415
    except ModuleNotFoundError as error:
        instead = MissingPackageError(error)
        return None, _of_scheduler(SchedulerApi(session.access, instead=instead), session, pods, addition)
    chosen = rules.read(arguments.config, session.client)
    try:
        state = scheduler_state.read(session, chosen)
        scheduler_state.read_priority_classes(session, state)
    except MissingRightError as error:
        return None, _of_scheduler(SchedulerApi(session.access, instead=error), session, pods, addition)
    chosen.note_gaps()
    alive = check_installation(session.client, chosen)
    require_installation(alive)
    named = [(each.workload.owner, manifests) for each, manifests in pods]
    return alive, local_capacity.count(session, state, chosen, named, addition)


def _of_scheduler(api: SchedulerApi, session: Session, pods: _Pods, addition: Addition | None) -> Capacity:
    """Return the counts of the scheduler, one pod after the other."""
    if addition is not None:
        raise CommandError(added.ADDS_TO_A_COPY)
    if not pods:
        return Capacity(api.capacity(session.namespace, None))
    views = [_of_pod(api, session, workload, manifests) for workload, manifests in pods]
    return Capacity(CapacityView(tuple(shape for view in views for shape in view.shapes), views[0].largest))


def _of_pod(api: SchedulerApi, session: Session, workload: SourcedWorkload, manifests: Manifests) -> CapacityView:
    metadata: dict[str, Any] = manifests.pod.setdefault("metadata", {})
    namespace = str(metadata.setdefault("namespace", session.namespace))
    try:
        view = api.capacity(namespace, manifests)
    except CommandError as error:
        raise CommandError(f"{workload.source}: {error}") from None
    named = tuple(msgspec.structs.replace(shape, name=workload.workload.owner) for shape in view.shapes)
    return msgspec.structs.replace(view, shapes=named)
