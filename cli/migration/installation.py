"""What the cluster itself brings: its version, what of Tranche is there, and who else decides about GPU pods."""

import re
from collections.abc import Iterator
from typing import Any, Final

from certs.ca_bundle import CONFIGURATION
from cli.migration import hami_objects
from cli.migration.findings import Finding
from cli.migration.survey import Rules, Survey, Version, WebhookConfiguration

_OLDEST: Final = (1, 30)
DEFINITIONS: Final = ("gpunodestatuses.gpu.scheduling", "leaderships.gpu.scheduling")
POLICIES: Final = (
    "tranche-agent",
    "tranche-allocation-binding",
    "tranche-allocation-update",
    "tranche-creation",
    "tranche-debug",
    "tranche-fence",
    "tranche-mig-wishes",
    "tranche-resize",
)
"""Those of manifests/base that every overlay keeps; a test holds this list against it."""
_HAMI_NODES: Final = "tranche-node-lock"
_UPDATES: Final = "tranche-allocation-update"
_INSTALL: Final = "kubectl apply -k your overlay of manifests/install (docs/migration.md)"


def judge(survey: Survey, rules: Rules, *, hami: frozenset[str], has_hami_nodes: bool) -> Iterator[Finding]:
    """Answer what is to be known of the cluster.

    Args:
        survey: of the cluster.
        rules: of the switch.
        hami: names of HAMi's scheduler.
        has_hami_nodes: whether HAMi's plugin serves any node.
    """
    for gap in survey.unread:
        yield Finding(
            "blocks", ("cluster",), f"cannot be judged whole: {gap.why}", "ask an administrator for that permission"
        )
    yield from _version(survey.version)
    yield from _parts(survey)
    yield from _webhooks(survey.webhooks, rules, hami)
    yield from _theirs(survey, has_hami_nodes=has_hami_nodes)


def is_installed(survey: Survey) -> bool:
    """Whether anything of Tranche is there."""
    return any(_present(survey))


def _version(version: Version | None) -> Iterator[Finding]:
    if version is None:
        return
    found = [re.match("[0-9]+", part) for part in (version.major, version.minor)]
    said = f"{version.major}.{version.minor}"
    if None in found:
        yield Finding("notes", ("cluster",), f"its version {said!r} cannot be read; 1.30 or newer is needed")
        return
    major, minor = (int(match[0]) for match in found if match is not None)
    if (major, minor) < _OLDEST:
        yield Finding(
            "blocks",
            ("cluster",),
            f"its API server is {said}: ValidatingAdmissionPolicy, which guards allocations, needs 1.30",
            "upgrade the control plane",
        )


def _present(survey: Survey) -> set[str]:
    definitions = {each.metadata.name for each in survey.definitions} & {*DEFINITIONS}
    policies = {each.metadata.name for each in survey.policies} & {*POLICIES}
    webhooks = {each.metadata.name for each in survey.webhooks} & {CONFIGURATION}
    return (
        {f"CustomResourceDefinition {name}" for name in definitions}
        | {f"ValidatingAdmissionPolicy {name}" for name in policies}
        | {f"MutatingWebhookConfiguration {name}" for name in webhooks}
    )


def _parts(survey: Survey) -> Iterator[Finding]:
    """Say what of Tranche is missing, as far as it could be looked for."""
    wanted = {
        *(f"CustomResourceDefinition {name}" for name in DEFINITIONS if survey.could_read("customresourcedefinitions")),
        *(f"ValidatingAdmissionPolicy {name}" for name in POLICIES if survey.could_read("validatingadmissionpolicies")),
    }
    if survey.could_read("mutatingwebhookconfigurations"):
        wanted.add(f"MutatingWebhookConfiguration {CONFIGURATION}")
    present = _present(survey)
    if not present:
        yield Finding("notes", ("cluster",), "nothing of Tranche is installed")
    elif missing := sorted(wanted - present):
        yield Finding(
            "blocks", ("cluster",), f"Tranche is installed in parts, missing are: {', '.join(missing)}", _INSTALL
        )


def _webhooks(configurations: list[WebhookConfiguration], rules: Rules, hami: frozenset[str]) -> Iterator[Finding]:
    ours = (*rules.webhook.aliases, *rules.webhook.takeover)
    for each in configurations:
        spoken = f"MutatingWebhookConfiguration {each.metadata.name}"
        if hami_objects.is_hamis(each):
            if not hami <= {*ours}:
                names = ", ".join(sorted(hami))
                yield Finding(
                    "blocks",
                    (spoken,),
                    f"HAMi's webhook is asked before ours and gives GPU pods to scheduler {names}, which places none"
                    " after the switch",
                    f"set webhook.aliases: [{names}] in Tranche's configuration (told here by --config)",
                )
            else:
                yield Finding(
                    "changes",
                    (spoken,),
                    "HAMi's webhook goes on being asked before ours; what it gives to HAMi's scheduler comes to ours",
                    f"kubectl delete mutatingwebhookconfiguration {each.metadata.name}, after the switch",
                )
        elif each.metadata.name != CONFIGURATION and _sees_pods(each):
            yield Finding("notes", (spoken,), "another webhook changes new pods; ours is asked again after it")


def _sees_pods(configuration: WebhookConfiguration) -> bool:
    return any(
        {"pods", "*", "*/*"} & {*rule.resources} and {"CREATE", "*"} & {*rule.operations}
        for webhook in configuration.webhooks
        for rule in webhook.rules
    )


def _theirs(survey: Survey, *, has_hami_nodes: bool) -> Iterator[Finding]:
    """Say what HAMi's scheduler and plugins need."""
    accounts: list[tuple[str, str]] = []
    for document in survey.workloads:
        metadata = document.get("metadata") or {}
        spoken = f"{document['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
        component = labels.get(hami_objects.COMPONENT, str(metadata.get("name", "")))
        if document["kind"] == "Deployment" and hami_objects.SCHEDULER in component:
            yield Finding(
                "changes",
                (spoken,),
                "HAMi's scheduler places no GPU pod any more from the installation on: policy tranche-allocation-update"
                " refuses what it writes into pods, so no two schedulers ever give out the same card",
                "scale it to 0 replicas after the switch",
            )
        if (
            document["kind"] == "DaemonSet"
            and hami_objects.plugin_of(str(metadata.get("name", "")), labels) == "HAMi's"
        ):
            accounts.append((spoken, _account(document)))
    if has_hami_nodes:
        yield from _component(survey, accounts)


def _account(document: dict[str, Any]) -> str:
    namespace = (document.get("metadata") or {}).get("namespace", "")
    spec = ((document.get("spec") or {}).get("template") or {}).get("spec") or {}
    return f"system:serviceaccount:{namespace}:{spec.get('serviceAccountName') or 'default'}"


def _component(survey: Survey, accounts: list[tuple[str, str]]) -> Iterator[Finding]:
    """Say whether what manifests/hami-nodes adds is there, where anything of ours is."""
    policies = {each.metadata.name: each for each in survey.policies}
    if _UPDATES not in policies:
        for spoken, account in accounts:
            yield Finding(
                "notes",
                (spoken,),
                f"HAMi's plugin writes as {account}",
                "name it in the patch of manifests/hami-nodes, if it is another one there",
            )
        return
    if _HAMI_NODES not in policies:
        yield Finding(
            "blocks",
            ("cluster",),
            "HAMi's plugin serves nodes, and the component manifests/hami-nodes is not installed: no pod of ours is"
            " placed there",
            "add it to your overlay and apply it",
        )
        return
    trusted = next((each.expression for each in policies[_UPDATES].spec.variables if each.name == "plugins"), "")
    for spoken, account in accounts:
        if f"'{account}'" not in trusted:
            yield Finding(
                "blocks",
                (spoken,),
                f"HAMi's plugin writes as {account}, which policy {_UPDATES} does not trust: no pod would be served",
                "name it in the patch of manifests/hami-nodes and apply it",
            )
