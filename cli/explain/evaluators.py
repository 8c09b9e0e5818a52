"""The choice of what evaluates pods for `explain` and `simulate`: the scheduler's functions here, or the scheduler.

The functions run here if numpy is installed and the user may read the whole cluster; otherwise the scheduler evaluates
the pods.
"""

import argparse
from collections.abc import Collection
from functools import partial

from cli.errors import MissingPackageError, MissingRightError
from cli.explain.evaluator import Evaluator
from cli.explain.remote_evaluator import RemoteEvaluator
from cli.installation import rules
from cli.kube import scheduler_version
from cli.kube.scheduler_api import SchedulerApi
from cli.kube.session import Session
from cli.liveness.installation_check import check_installation
from cli.liveness.wording import require_installation


def choose(session: Session, arguments: argparse.Namespace) -> Evaluator:
    """Return the remote evaluator if a flag names a scheduler or the local one cannot work, else the local one.

    Raises:
        CommandError: Tranche is not installed, its configuration is wrong, or the API server cannot be reached.
    """
    remote = partial(RemoteEvaluator, namespace=session.namespace, node=arguments.node)
    if arguments.scheduler_url:
        return remote(SchedulerApi(session.access, url=arguments.scheduler_url))
    try:
        from cli.explain import local_evaluator, scheduler_state  # noqa: PLC0415 -- they need numpy
    except ModuleNotFoundError as error:
        return remote(SchedulerApi(session.access, instead=MissingPackageError(error)))
    chosen = rules.read(arguments.config, session.client)
    try:
        state = scheduler_state.read(session, chosen)
        if arguments.command == "simulate":
            scheduler_state.read_priority_classes(session, state)
        budgets = scheduler_state.read_budgets(session)
    except MissingRightError as error:
        return remote(SchedulerApi(session.access, instead=error))
    chosen.note_gaps()
    alive = check_installation(session.client, chosen)
    require_installation(alive)
    scheduler_version.warn_of_skew(session.client)
    return local_evaluator.LocalEvaluator(
        state, chosen, alive, budgets=budgets, namespace=session.namespace, cards_of=_cards_of(arguments)
    )


def _cards_of(arguments: argparse.Namespace) -> Collection[str] | None:
    """Return the nodes whose cards are shown, or None for all nodes, which only the structured formats show."""
    if arguments.node:
        return (arguments.node,)
    return None if arguments.output in ("json", "yaml") else ()
