"""`kubectl gpu simulate`: where the pods of a manifest would be placed, or why they would wait."""

import argparse
import sys
from typing import Any

import msgspec

from cli.errors import CommandError
from cli.explain import evaluators
from cli.explain.evaluator import Evaluator
from cli.explain.explain import text
from cli.explain.replicas import Replicas
from cli.kube.session import Session
from cli.liveness.liveness import liveness_lines, with_liveness
from cli.tables import structured
from cli.workloads import files
from cli.workloads.files import SourcedWorkload
from scheduler.api.simulation_types import Simulation


class Simulated(msgspec.Struct, frozen=True):
    """The simulation of a workload's first pod, and a summary of the pods that were evaluated."""

    source: str
    simulation: Simulation
    replicas: Replicas

    @property
    def is_placed(self) -> bool:
        """Whether all evaluated pods fit."""
        return self.simulation.error is None and self.replicas.unfit is None


class Simulations(msgspec.Struct, frozen=True):
    """What `kubectl gpu simulate -o json` prints after the state of the installation."""

    items: tuple[Simulated, ...]


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print what would happen to each pod; return 1 if a pod would not be placed."""
    sources, claims = files.read(arguments.filename)
    evaluator = evaluators.choose(session, arguments)
    items = tuple(_simulate(evaluator, source, claims, every=arguments.all) for source in sources)
    printed = structured(with_liveness(evaluator.alive, Simulations(items)), output=arguments.output)
    if printed is None:
        printed = "\n".join([*liveness_lines(evaluator.alive), *(_text(each, arguments) for each in items)])
    print(printed, end="")
    stops = evaluator.alive is not None and evaluator.alive.stops
    return 0 if not stops and all(each.is_placed for each in items) else 1


def _simulate(evaluator: Evaluator, source: SourcedWorkload, claims: list[dict[str, Any]], *, every: bool) -> Simulated:
    try:
        return Simulated(source.source, *evaluator.simulate(source.workload, every=every, claims=claims))
    except CommandError as error:
        raise CommandError(f"{source.source}: {error}") from None


def _text(simulated: Simulated, arguments: argparse.Namespace) -> str:
    source, replicas = simulated.source, simulated.replicas
    for warning in simulated.simulation.warnings:
        print(f"warning: {source}: {warning}", file=sys.stderr)
    printed = [_of_simulation(source, simulated.simulation, arguments)]
    owner = source.rpartition(", ")[2]
    if replicas.evaluated < replicas.total:
        printed.append(
            f"{owner}: {replicas.evaluated} of {replicas.total} replicas evaluated; --all evaluates all of them\n"
        )
    elif replicas.total > 1:
        nodes = ", ".join(f"{name} {count}" for name, count in replicas.nodes.items())
        printed.append(f"{owner}: {replicas.fit} of {replicas.total} replicas fit{f': {nodes}' if nodes else ''}\n")
    if replicas.note:
        printed.append(f"{owner}: {replicas.note}\n")
    if replicas.unfit is not None and replicas.fit:
        printed.append(f"the first replica that does not fit:\n{_of_simulation(source, replicas.unfit, arguments)}")
    return "".join(printed)


def _of_simulation(source: str, simulated: Simulation, arguments: argparse.Namespace) -> str:
    if simulated.explanation is None:
        reason = simulated.error.message if simulated.error is not None else ""
        return f"{source} would be refused at creation: {reason}\n"
    return text(simulated.explanation, arguments)
