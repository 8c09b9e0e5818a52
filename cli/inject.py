"""`kubectl gpu inject`: manifests as the admission webhook would leave them, without a cluster."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

import jsonpatch
import msgspec

from allocation.errors import AllocationError
from allocation.settings import AllocationSettings
from cli import manifest, pod_templates, settings
from cli.errors import CommandError
from cli.manifest import Document, UnreadableManifestError
from cli.tables import note
from webhook.mutation import Mutation, mutate
from webhook.refusal import RefusedError
from webhook.review import UnreadablePodError, decode_pod
from webhook.settings import WebhookSettings

_STANDARD_INPUT: Final = "-"


class _Rules(msgspec.Struct, frozen=True):
    """What the webhook goes by."""

    allocation: AllocationSettings
    webhook: WebhookSettings
    user: str


def run(arguments: argparse.Namespace) -> int:
    """Print every document of every file, or say why one pod may not be."""
    rules = _rules(arguments)
    documents: list[Document] = []
    refused = False
    pods = 0
    for name in arguments.filename:
        spoken = "standard input" if name == _STANDARD_INPUT else name
        found = _read(name, spoken)
        objects = (document for document in found if document.content is not None)
        for number, document in enumerate(objects, start=1):
            where = f"{spoken}, document {number}"
            if not isinstance(document.content, dict):
                raise CommandError(f"{where} is no Kubernetes object but a {_kind(document.content)}")
            for template in pod_templates.of(document.content):
                pods += 1
                refused |= not _inject(document, template, rules, where=f"{where}, {template.owner}")
        documents += found
    if not any(document.content for document in documents):
        raise CommandError(f"no object in {', '.join(arguments.filename)}")
    if refused:
        return 1
    if not pods:
        note("no pod and no pod template in it: nothing to inject")
    render = manifest.in_json if arguments.output == "json" else manifest.in_yaml
    print(render(documents), end="")
    return 0


def _inject(document: Document, template: pod_templates.Template, rules: _Rules, *, where: str) -> bool:
    """Change a pod in its document; answer whether it may be created."""
    try:
        mutation = _mutation(template.pod, rules)
    except (UnreadablePodError, AllocationError, RefusedError) as error:
        print(f"error: {where}: {error}", file=sys.stderr)
        return False
    for warning in mutation.warnings:
        print(f"warning: {where}: {warning}", file=sys.stderr)
    if mutation.operations:
        operations = msgspec.to_builtins(mutation.operations)
        jsonpatch.apply_patch(template.pod, operations, in_place=True)
        document.changed = True
    return True


def _mutation(pod: dict[str, Any], rules: _Rules) -> Mutation:
    # An API server drops members that are null before admission sees them.
    sent = msgspec.Raw(json.dumps(_without_nulls(pod)).encode())
    return mutate(
        decode_pod(sent),
        username=rules.user,
        allocation=rules.allocation,
        settings=rules.webhook,
        quotas={},  # they belong to a cluster, of which nothing is asked here
    )


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value


def _read(name: str, spoken: str) -> list[Document]:
    try:
        text = sys.stdin.read() if name == _STANDARD_INPUT else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"{spoken} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{spoken} is no text in UTF-8") from None
    try:
        return manifest.read(text)
    except UnreadableManifestError as error:
        raise CommandError(f"{spoken} is neither YAML nor JSON: {error}") from None


def _rules(arguments: argparse.Namespace) -> _Rules:
    if not arguments.config:
        return _Rules(AllocationSettings(), WebhookSettings(), arguments.user)
    told = settings.whole(arguments.config, prog="kubectl gpu inject")
    return _Rules(told.allocation, told.own, arguments.user)


def _kind(content: object) -> str:
    return "list" if isinstance(content, list) else "scalar"
