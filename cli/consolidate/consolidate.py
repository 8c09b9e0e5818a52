"""`kubectl gpu consolidate`: plan which pods to move so that a pending pod fits, and have the scheduler move them."""

import argparse
import sys
import time
from typing import Any, Final

import msgspec

from cli.errors import CommandError, MissingPackageError
from cli.installation import rules
from cli.installation.rules import Rules
from cli.kube.objects import UNFINISHED
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.tables import Table, note, render
from cluster.resource import PODS
from scheduler.api.consolidation_types import ConsolidationExplanation
from scheduler.objects import Pod

_MOST: Final = 20
"""Pending pods for which there is a plan, in the scheduler's order of priority and age."""
_MOST_CARDS: Final = 64
_PENDING: Final = f"spec.nodeName=,{UNFINISHED}"
_POLL_SECONDS: Final = 1.0
_NO_CHANGE: Final = "nothing was changed; --apply moves the pods"


class PodPlan(msgspec.Struct, frozen=True):
    """The moves for a pending pod."""

    namespace: str
    pod: str
    consolidation: ConsolidationExplanation


class PodPlans(msgspec.Struct, frozen=True):
    """What `-o json` and `-o yaml` print."""

    items: tuple[PodPlan, ...]


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the plans, and with `--apply` have the moves made."""
    _check(arguments)
    if arguments.apply:
        return _apply(session, arguments)
    plans = _plans(session, arguments)
    print(_text(plans, arguments), end="")
    is_planned = any(each.consolidation.count for each in plans.items)
    if is_planned and arguments.output == "table":
        note(_NO_CHANGE)
    return 0 if is_planned or not plans.items else 1


def _check(arguments: argparse.Namespace) -> None:
    if arguments.free < 0 or arguments.free > _MOST_CARDS:
        raise CommandError(f"--free {arguments.free}: it must be a number of cards from 1 to {_MOST_CARDS}")
    if arguments.free and (arguments.pod or arguments.apply):
        raise CommandError("--free plans for no existing pod: omit POD and --apply")
    if arguments.apply and not arguments.pod:
        raise CommandError("--apply requires POD: pods are moved for one pending pod at a time")


# ---- the plan --------------------------------------------------------------------------------------------------------


def _plans(session: Session, arguments: argparse.Namespace) -> PodPlans:
    """Return the plans for the pods of the command line, by what the API server shows.

    Raises:
        CommandError: the cluster may not be read, or kube-scheduler places the pods.
    """
    try:
        from allocation.steps import finish  # noqa: PLC0415 -- with the rest
        from cli.explain import local_evaluator, scheduler_state  # noqa: PLC0415 -- they need numpy
        from scheduler.api.evictions import explained  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingPackageError(error) from None
    chosen = rules.read(arguments.config, session.client)
    state = scheduler_state.read(session, chosen)
    evictions = local_evaluator.evictions(state, chosen, scheduler_state.read_budgets(session))
    if evictions.planner is None:
        raise CommandError(
            "the scheduler moves no pods: in extender mode kube-scheduler has the queue, and with"
            " scheduler.preemption.enabled: false the scheduler has no right to evict"
        )
    chosen.note_gaps()
    pods = [_of_cards(arguments.free, chosen, session.namespace)] if arguments.free else _pending(session, arguments)
    ours = [each for each in pods if state.is_ours(each) and not each.spec.scheduling_gates]
    if arguments.pod and not ours:
        raise CommandError(f"pod {session.namespace}/{arguments.pod} is not pending, or is left to another scheduler")
    ours.sort(key=lambda each: (-each.spec.priority, each.metadata.creation_timestamp or "", str(each)))
    if len(ours) > _MOST:
        note(f"{len(ours) - _MOST} more pending pods are not evaluated; name one of them")
    found = (
        PodPlan(each.metadata.namespace, each.metadata.name, explained(finish(evictions.planner.plan(each))))
        for each in ours[:_MOST]
    )
    return PodPlans(tuple(found))


def _pending(session: Session, arguments: argparse.Namespace) -> list[Pod]:
    if arguments.pod:
        pod = session.get(PODS, Pod, arguments.pod)
        return [pod] if not pod.spec.node_name and not pod.finished else []
    namespace = "" if arguments.all_namespaces else arguments.namespace
    pods = session.client.list(PODS, Pod, namespace=namespace, field_selector=_PENDING)
    return [each for each in pods if not each.metadata.deletion_timestamp]


def _of_cards(count: int, chosen: Rules, namespace: str) -> Pod:
    """Return a pod that requests whole cards."""
    limits = {chosen.allocation.resources.count: str(count)}
    body: dict[str, Any] = {
        "metadata": {"name": f"{count}-cards", "namespace": namespace, "uid": "free-cards"},
        "spec": {
            "schedulerName": chosen.names[0],
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": limits}}],
        },
    }
    return msgspec.convert(body, Pod)


def _text(plans: PodPlans, arguments: argparse.Namespace) -> str:
    rows = []
    for each in plans.items:
        plan, pod = each.consolidation, f"{each.namespace}/{each.pod}"
        rows += [
            (pod, f"{move.namespace}/{move.name}", plan.node, move.to, f"{move.memory_mib} MiB") for move in plan.moves
        ]
        if not plan.count and arguments.output == "table":
            note(f"pod {pod}: no plan, because {plan.why}")
    table = Table(("PENDING POD", "MOVED POD", "FROM", "TO", "MEMORY"), rows)
    if not rows and arguments.output == "table":
        return ""
    return render(plans, table, output=arguments.output, headers=not arguments.no_headers)


# ---- the moves -------------------------------------------------------------------------------------------------------


def _apply(session: Session, arguments: argparse.Namespace) -> int:
    """Start the moves in the scheduler, and wait for the end; return 0 if the pod has a node then."""
    plans = _plans(session, arguments)
    print(_text(plans, arguments), end="", flush=True)
    label = f"pod {session.namespace}/{arguments.pod}"
    (plan,) = (each.consolidation for each in plans.items)
    if not plan.count:
        return 1
    api = SchedulerApi(session.access, url=arguments.scheduler_url)
    begun = api.consolidate(session.namespace, arguments.pod, most_moves=plan.count)
    if not begun.count:
        raise CommandError(f"{label}: no pod was moved: {begun.why}")
    if begun.moves != plan.moves:
        note(f"the scheduler moves {', '.join(f'{each.namespace}/{each.name}' for each in begun.moves)}")
    shown = -1
    while (progress := api.consolidation(session.namespace, arguments.pod)).phase == "moving":
        if progress.done != shown:
            print(f"{progress.done} of {progress.total} moved", file=sys.stderr, flush=True)
            shown = progress.done
        time.sleep(_POLL_SECONDS)
    if progress.outcome != "placed":
        why = progress.why or "the pod was deleted, or a pod of higher rank took the cards"
        raise CommandError(f"{label} was not placed: {why}; see 'kubectl gpu explain {arguments.pod}'")
    print(f"{label} is placed on node {session.get(PODS, Pod, arguments.pod).spec.node_name}")
    return 0
