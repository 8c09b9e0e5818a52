"""Findings about the cluster: its version, the installed parts of Tranche, and other software for GPU pods."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from allocation.names import SCHEDULER_NAME
from certs.ca_bundle import CONFIGURATION
from cli.installation.method import Method
from cli.installation.rules import Rules
from cli.liveness.installation_check import INSTALL
from cli.liveness.liveness import Liveness
from cli.preflight import hami_objects
from cli.preflight.cluster_snapshot import ClusterSnapshot, WebhookConfiguration
from cli.preflight.findings import Finding, Severity
from cluster.server_version import ServerVersion
from scheduler.objects import Pod

_OLDEST: Final = (1, 30)
DEFINITIONS: Final = (
    "gpuclaims.gpu.scheduling",
    "gpunodestatuses.gpu.scheduling",
    "gpuqueues.gpu.scheduling",
    "gpuquotas.gpu.scheduling",
    "leaderships.gpu.scheduling",
)
POLICIES: Final = (
    "tranche-agent",
    "tranche-allocation-binding",
    "tranche-allocation-update",
    "tranche-claims",
    "tranche-creation",
    "tranche-debug",
    "tranche-deletion",
    "tranche-device-leases",
    "tranche-eviction",
    "tranche-fence",
    "tranche-isolation",
    "tranche-limits",
    "tranche-mig-wishes",
    "tranche-phase",
    "tranche-preemption",
    "tranche-queue-deletion",
    "tranche-resize",
    "tranche-volumes",
)
"""The policies of manifests/base that every overlay keeps; a test compares this list with the manifests."""
_HAMI_NODES: Final = "tranche-node-lock"
_UPDATES: Final = "tranche-allocation-update"


def evaluate(
    snapshot: ClusterSnapshot, rules: Rules, *, hami: frozenset[str], has_hami_nodes: bool
) -> Iterator[Finding]:
    """Return the findings about the cluster.

    Args:
        snapshot: the objects of the cluster.
        rules: the settings after the switch.
        hami: the scheduler names of HAMi.
        has_hami_nodes: whether HAMi's plugin serves any node.
    """
    for gap in snapshot.unread:
        severity: Severity = "notes" if gap.is_optional else "blocks"
        what = f"cannot be read completely: {gap.why}"
        yield Finding(severity, ("cluster",), what, "ask an administrator for that permission")
    yield from _version(snapshot.version)
    yield from _parts(snapshot, rules.method)
    if snapshot.liveness is not None and snapshot.liveness.installed:
        yield from _broken(snapshot.liveness)
    yield from _webhooks(snapshot.webhooks, rules, hami)
    yield from _hami(snapshot, rules.method, has_hami_nodes=has_hami_nodes)


def is_installed(snapshot: ClusterSnapshot) -> bool:
    """Whether any part of Tranche is installed."""
    return any(_present(snapshot))


def remains(pods: Iterable[Pod]) -> Iterator[Finding]:
    """Return the pods that wait for an installation that was removed."""
    for pod in pods:
        if pod.spec.scheduler_name == SCHEDULER_NAME and not pod.spec.node_name and not pod.finished:
            yield Finding(
                "blocks",
                (f"pod {pod}",),
                f"waits for scheduler {SCHEDULER_NAME}, but Tranche is not installed: nothing places it",
                f"{INSTALL}, or delete the pod and create it again",
            )


def _version(version: ServerVersion | None) -> Iterator[Finding]:
    if version is None:
        return
    text = f"{version.major}.{version.minor}"
    if version.numbers is None:
        yield Finding("notes", ("cluster",), f"its version {text!r} cannot be read; 1.30 or newer is required")
        return
    if version.numbers < _OLDEST:
        yield Finding(
            "blocks",
            ("cluster",),
            f"its API server is {text}: ValidatingAdmissionPolicy, which protects allocations, requires 1.30",
            "upgrade the control plane",
        )


def _present(snapshot: ClusterSnapshot) -> set[str]:
    definitions = {each.metadata.name for each in snapshot.definitions} & {*DEFINITIONS}
    policies = {each.metadata.name for each in snapshot.policies} & {*POLICIES}
    webhooks = {each.metadata.name for each in snapshot.webhooks} & {CONFIGURATION}
    return (
        {f"CustomResourceDefinition {name}" for name in definitions}
        | {f"ValidatingAdmissionPolicy {name}" for name in policies}
        | {f"MutatingWebhookConfiguration {name}" for name in webhooks}
    )


def _parts(snapshot: ClusterSnapshot, method: Method) -> Iterator[Finding]:
    """Return the parts of Tranche that are missing, among the kinds that could be read."""
    wanted = {
        *(
            f"CustomResourceDefinition {name}"
            for name in DEFINITIONS
            if snapshot.could_read("customresourcedefinitions")
        ),
        *(
            f"ValidatingAdmissionPolicy {name}"
            for name in POLICIES
            if snapshot.could_read("validatingadmissionpolicies")
        ),
    }
    if snapshot.could_read("mutatingwebhookconfigurations"):
        wanted.add(f"MutatingWebhookConfiguration {CONFIGURATION}")
    present = _present(snapshot)
    if not present:
        yield Finding("notes", ("cluster",), "nothing of Tranche is installed", INSTALL)
    elif missing := sorted(wanted - present):
        what = f"Tranche is only partly installed, missing are: {', '.join(missing)}"
        yield Finding("blocks", ("cluster",), what, method.apply_again())


def _broken(liveness: Liveness) -> Iterator[Finding]:
    """Return the parts that do not work; silent agents are findings about their nodes."""
    for part in liveness.problems:
        if part.name != "agents" or part.state == "missing" or part.stops:
            yield Finding("blocks", (part.object,), f"{part.name}: {part.message}", part.next_step)
    for part in liveness.unknown:
        yield Finding(
            "blocks", (part.object,), f"its state is unknown: {part.message}", "run preflight as an administrator"
        )


def _webhooks(configurations: list[WebhookConfiguration], rules: Rules, hami: frozenset[str]) -> Iterator[Finding]:
    ours = (*rules.webhook.aliases, *rules.webhook.takeover)
    for each in configurations:
        subject = f"MutatingWebhookConfiguration {each.metadata.name}"
        if hami_objects.is_hamis(each):
            if not hami <= {*ours}:
                names = ", ".join(sorted(hami))
                yield Finding(
                    "blocks",
                    (subject,),
                    f"HAMi's webhook is called before Tranche's and assigns GPU pods to scheduler {names}, which places"
                    " none after the switch",
                    f"set webhook.aliases: [{names}] in Tranche's configuration (pass it to preflight with --config)",
                )
            else:
                yield Finding(
                    "changes",
                    (subject,),
                    "HAMi's webhook is still called before Tranche's; the alias takes over the pods that it assigns",
                    f"kubectl delete mutatingwebhookconfiguration {each.metadata.name}, after the switch",
                )
        elif each.metadata.name != CONFIGURATION and _sees_pods(each):
            yield Finding("notes", (subject,), "another webhook changes new pods; Tranche's is called again after it")


def _sees_pods(configuration: WebhookConfiguration) -> bool:
    return any(
        {"pods", "*", "*/*"} & {*rule.resources} and {"CREATE", "*"} & {*rule.operations}
        for webhook in configuration.webhooks
        for rule in webhook.rules
    )


def _hami(snapshot: ClusterSnapshot, method: Method, *, has_hami_nodes: bool) -> Iterator[Finding]:
    """Return the findings about HAMi's scheduler and device plugins."""
    accounts: list[tuple[str, str]] = []
    for document in snapshot.workloads:
        metadata = document.get("metadata") or {}
        subject = f"{document['kind']} {metadata.get('namespace', '')}/{metadata.get('name', '')}"
        labels = {str(key): str(value) for key, value in (metadata.get("labels") or {}).items()}
        component = labels.get(hami_objects.COMPONENT, str(metadata.get("name", "")))
        if document["kind"] == "Deployment" and hami_objects.SCHEDULER in component:
            yield Finding(
                "changes",
                (subject,),
                "HAMi's scheduler places no GPU pods once Tranche is installed: policy tranche-allocation-update"
                " rejects what it writes into pods, so that two schedulers never allocate the same card",
                "scale it to 0 replicas after the switch",
            )
        if (
            document["kind"] == "DaemonSet"
            and hami_objects.plugin_of(str(metadata.get("name", "")), labels) == "HAMi's"
        ):
            accounts.append((subject, _account(document)))
    if has_hami_nodes:
        yield from _component(snapshot, method, accounts)


def _account(document: dict[str, Any]) -> str:
    namespace = (document.get("metadata") or {}).get("namespace", "")
    spec = ((document.get("spec") or {}).get("template") or {}).get("spec") or {}
    return f"system:serviceaccount:{namespace}:{spec.get('serviceAccountName') or 'default'}"


def _component(snapshot: ClusterSnapshot, method: Method, accounts: list[tuple[str, str]]) -> Iterator[Finding]:
    """Return the findings about the component manifests/hami-nodes and the accounts that it trusts."""
    policies = {each.metadata.name: each for each in snapshot.policies}
    if _UPDATES not in policies:
        for subject, account in accounts:
            yield Finding(
                "notes",
                (subject,),
                f"HAMi's plugin writes as {account}",
                "set it in the patch of manifests/hami-nodes, unless it is already there (Helm: hamiNodes.pluginUser)",
            )
        return
    if _HAMI_NODES not in policies:
        yield Finding(
            "blocks",
            ("cluster",),
            "HAMi's plugin serves nodes, but the component for them is not installed: Tranche places no pod there",
            method.change(
                "add the component manifests/hami-nodes to your overlay and apply it", values="hamiNodes.enabled=true"
            ),
        )
        return
    trusted = next((each.expression for each in policies[_UPDATES].spec.variables if each.name == "plugins"), "")
    for subject, account in accounts:
        if f"'{account}'" not in trusted:
            yield Finding(
                "blocks",
                (subject,),
                f"HAMi's plugin writes as {account}, which policy {_UPDATES} does not trust: it can serve no pod",
                method.change(
                    "set it in the patch of manifests/hami-nodes and apply it", values=f"hamiNodes.pluginUser={account}"
                ),
            )
