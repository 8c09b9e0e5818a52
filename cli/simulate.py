"""`kubectl gpu simulate`: where the pods of a manifest would go, or why they would wait."""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from cli import manifest_files, pod_templates, scheduler_view
from cli.errors import CommandError
from cli.explain import cards_of, text
from cli.scheduler_view import Rules
from cli.session import Session
from cli.tables import Table, render
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from scheduler import simulation
from scheduler.simulation_api import Simulation
from scheduler.state import State
from scheduler.submission import UnknownSchedulerError, submit
from webhook import rehearsal


class _Asked(msgspec.Struct, frozen=True):
    """A pod of a file: what to call it, and its manifest."""

    source: str
    manifest: dict[str, Any]


class Simulated(msgspec.Struct, frozen=True):
    """What would become of one pod."""

    source: str
    simulation: Simulation


class Simulations(msgspec.Struct, frozen=True):
    """What `kubectl gpu simulate -o json` prints."""

    items: tuple[Simulated, ...]


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print what would become of each pod; answer 1 where one would not be placed."""
    asked = [each for name in arguments.filename for each in _pods(name, session.namespace)]
    if not asked:
        raise CommandError(f"no pod and no pod template in {', '.join(arguments.filename)}")
    rules = scheduler_view.rules(arguments.config, prog="kubectl gpu simulate")
    state = scheduler_view.look(session, rules)
    items = tuple(Simulated(each.source, _simulate(state, each, rules, arguments)) for each in asked)
    if arguments.output in ("json", "yaml"):
        print(render(Simulations(items), Table((), ()), output=arguments.output), end="")
    else:
        print("\n".join(_text(each, arguments) for each in items), end="")
    return 1 if any(each.simulation.error is not None for each in items) else 0


def _pods(name: str, namespace: str) -> Iterator[_Asked]:
    spoken, documents = manifest_files.read(name)
    for number, document in enumerate((each for each in documents if each.content is not None), start=1):
        for template in pod_templates.of(document.content):
            yield _Asked(f"{spoken}, document {number}, {template.owner}", _manifest(template, namespace))


def _manifest(template: pod_templates.Template, namespace: str) -> dict[str, Any]:
    """Answer the pod that would be made: a template has no name and no namespace of its own."""
    metadata = template.pod.get("metadata") or {}
    known = {"name": template.owner.partition(" ")[2], "namespace": template.namespace or namespace}
    return {**template.pod, "metadata": {**known, **metadata} if isinstance(metadata, dict) else metadata}


def _simulate(state: State, asked: _Asked, rules: Rules, arguments: argparse.Namespace) -> Simulation:
    admit = partial(rehearsal.rehearse, allocation=rules.allocation, settings=rules.webhook)
    try:
        submitted = submit(state, asked.manifest, admit)
    except UnreadableManifestError as error:
        raise CommandError(f"{asked.source}: {error}") from None
    except NotAdmittedError as error:
        return simulation.not_admitted(str(error))
    except UnknownSchedulerError as error:
        namespace = asked.manifest["metadata"]["namespace"]
        raise CommandError(
            f"{asked.source}: it would be left to scheduler {error}: it asks for no GPU, names that one, or nobody "
            f"opted it in; 'kubectl label namespace {namespace} gpu.scheduling/injection=enabled' opts all pods in"
        ) from None
    return simulation.simulate(state, submitted, cards_of=cards_of(arguments))


def _text(found: Simulated, arguments: argparse.Namespace) -> str:
    for warning in found.simulation.warnings:
        print(f"warning: {found.source}: {warning}", file=sys.stderr)
    if found.simulation.explanation is None:
        error = found.simulation.error
        return f"{found.source} would be refused at creation: {error.message if error is not None else ''}\n"
    return text(found.simulation.explanation, arguments)
