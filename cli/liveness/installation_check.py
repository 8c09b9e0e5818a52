"""Check all parts of an installation. Reads only."""

import time
from collections.abc import Sequence
from typing import Final

import msgspec

from allocation.names import HAMI_REGISTER, SYSTEM_NAMESPACE
from cli.errors import MissingRightError
from cli.installation.rules import Rules
from cli.kube.client import Client
from cli.kube.objects import NodeMetadata
from cli.liveness import pods, webhook
from cli.liveness.agents import Agents
from cli.liveness.liveness import Liveness, Part, PartName
from cluster.errors import NotFoundError
from cluster.lease import Lease
from cluster.resource import GPU_NODE_STATUSES, LEASES, NODES, RUNTIME_CLASSES
from scheduler.fence import NAME as SCHEDULER_LEASE
from scheduler.state.agent_leases import GRACE_SECONDS

INSTALL: Final = "install it with 'helm install' or 'kubectl apply -k manifests/install' (docs/start.md)"
_NOTHING: Final = "no GPU pod is placed"
_NAMED: Final = 5
_INTERVAL_SECONDS: Final = 0.5
_SHORTEST_SECONDS, _LONGEST_SECONDS = 1.0, 5.0
_RENEWALS: Final = 3
"""A holder renews its Lease at least this often before the Lease expires."""


def check_installation(client: Client, rules: Rules) -> Liveness:
    """Return the state of the parts of an installation with the settings `rules`.

    A part that the caller has no right to read is `unknown`. The check takes some seconds if the Lease of a
    scheduler seems to have expired.
    """
    apply_again = rules.method.apply_again()
    admission = webhook.check(client, configuration=rules.webhook.webhook_configuration, apply_again=apply_again)
    agents = _agents(client)
    if agents is None and admission.state in ("missing", "unknown"):
        message = "has no part of Tranche installed: it admits and places no GPU pods"
        return Liveness(False, (Part("installation", "missing", "cluster", message, INSTALL, stops=True),))  # noqa: FBT003 -- `installed`
    if agents is None:
        message = "is not defined: agents cannot report cards"
        subject = f"CustomResourceDefinition {GPU_NODE_STATUSES.plural}.{GPU_NODE_STATUSES.group}"
        agents = Part("agents", "missing", subject, message, apply_again, stops=True)
    parts = [admission, *_runtime_class(client, rules), _scheduler(client)]
    configured = rules.kube_scheduler
    if (rules.extender or rules.allocation.hands_over) and configured.lease_name:
        parts.append(_kube_scheduler(client, rules))
    return Liveness(installed=True, parts=(*parts, agents))


def _runtime_class(client: Client, rules: Rules) -> Sequence[Part]:
    """Return the state of the RuntimeClass that admission writes into GPU pods, or nothing if it writes none."""
    name = rules.webhook.runtime_class_name
    if not name:
        return ()
    subject = f"RuntimeClass {name}"
    try:
        client.get(RUNTIME_CLASSES, NodeMetadata, name=name, metadata_only=True)
    except NotFoundError:
        message = "does not exist: admission writes it into GPU pods, which the API server then rejects"
        nothing = rules.method.change(
            f"set webhook.runtime_class_name in ConfigMap {SYSTEM_NAMESPACE}/tranche to nothing",
            values="runtimeClassName=",
        )
        next_step = (
            f"create it, as NVIDIA's GPU operator does; if the operator runs with cdi.nriPluginEnabled, {nothing}"
        )
        return (Part("RuntimeClass", "missing", subject, message, next_step, stops=True),)
    except MissingRightError as error:
        return (Part("RuntimeClass", "unknown", subject, str(error)),)
    return (Part("RuntimeClass", "working", subject),)


def _scheduler(client: Client) -> Part:
    return _leader_of(client, "scheduler", namespace=SYSTEM_NAMESPACE, name=SCHEDULER_LEASE)


def _kube_scheduler(client: Client, rules: Rules) -> Part:
    configured = rules.kube_scheduler
    part = _leader_of(client, "kube-scheduler", namespace=configured.lease_namespace, name=configured.lease_name)
    if rules.extender or not part.stops:
        return part
    message = part.message.replace(_NOTHING, "no GPU pod with resourceClaims is placed")
    return msgspec.structs.replace(part, message=message, stops=False)


def _leader_of(client: Client, part: PartName, *, namespace: str, name: str) -> Part:
    """Return the state of a process that leads through a Lease."""
    subject = f"Lease {namespace}/{name}"
    try:
        problem = _lease_problem(client, namespace=namespace, name=name)
    except MissingRightError as error:
        return Part(part, "unknown", subject, str(error))
    if not problem:
        return Part(part, "working", subject)
    if namespace != SYSTEM_NAMESPACE:
        next_step = f"see 'kubectl -n {namespace} get pods'"
        return Part(part, "broken", subject, f"{problem}: {_NOTHING}", next_step, stops=True)
    why, next_step = pods.diagnose(pods.of_component(client, "scheduler"), "scheduler")
    return Part(part, "broken", subject, f"{problem} ({why}): {_NOTHING}", next_step, stops=True)


def _agents(client: Client) -> Part | None:
    """Return the state of the agents, or None if GpuNodeStatus is not defined."""
    subject = f"Leases of agents in {SYSTEM_NAMESPACE}"
    try:
        reports = client.list(GPU_NODE_STATUSES, NodeMetadata, metadata_only=True)
        nodes = client.list(NODES, NodeMetadata, metadata_only=True)
        leases = client.list(LEASES, Lease, namespace=SYSTEM_NAMESPACE)
    except NotFoundError:
        return None
    except MissingRightError as error:
        return Part("agents", "unknown", subject, str(error))
    existing = {node.metadata.name for node in nodes}
    reported = sorted(report.metadata.name for report in reports if report.metadata.name in existing)
    if not reported and any(HAMI_REGISTER in node.metadata.annotations for node in nodes):
        return Part("agents", "working", subject)  # HAMi's plugin reports the cards of its nodes
    agents = Agents(leases, now=time.time() + client.clock_ahead)
    silent = [name for name in reported if agents.of(name).state == "Silent"]
    if reported and not silent:
        return Part("agents", "working", subject)
    why, next_step = pods.diagnose(pods.of_component(client, "agent"), "agent")
    if not reported:
        message = f"({why}): no node has reported cards, so no GPU pod is placed"
        return Part("agents", "broken", "DaemonSet tranche-system/tranche-agent", message, next_step, stops=True)
    named = ",".join(silent[:_NAMED]) + (",…" if len(silent) > _NAMED else "")
    message = (
        f"are not renewed on {len(silent)} of {len(reported)} nodes ({named}; {why}): these nodes take no new GPU pods"
    )
    return Part("agents", "broken", subject, message, next_step, stops=len(silent) == len(reported))


def _find(client: Client, *, namespace: str, name: str) -> Lease | None:
    """Return a Lease, or None if it does not exist; requires the right to list."""
    leases = client.list(LEASES, Lease, namespace=namespace, field_selector=f"metadata.name={name}")
    return leases[0] if leases else None


def _lease_problem(client: Client, *, namespace: str, name: str) -> str:
    """Return the reason why a Lease is not held, to follow its name in a sentence, or an empty string.

    The renewal time comes from the holder's clock. A Lease that seems to have expired is therefore watched for a while:
    an observed renewal proves that there is a holder, whatever its clock says.
    """
    first = _find(client, namespace=namespace, name=name)
    reason = _lease_fault(first, now=time.time() + client.clock_ahead)
    if not reason or first is None:
        return reason
    seconds = (first.spec.lease_duration_seconds or GRACE_SECONDS) / _RENEWALS
    deadline = time.monotonic() + min(max(seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)
    while time.monotonic() < deadline:
        time.sleep(_INTERVAL_SECONDS)
        later = _find(client, namespace=namespace, name=name)
        if later is not None and later.spec.holder_identity and later.spec != first.spec:
            return ""
    return reason


def _lease_fault(lease: Lease | None, *, now: float) -> str:
    """Return the reason why `lease`, by its own fields, is not held at Unix time `now`, or an empty string."""
    if lease is None:
        return "does not exist: it was never held"
    if not lease.spec.holder_identity:
        return "has no holder"
    age = now - lease.spec.renewed_at
    if age <= (lease.spec.lease_duration_seconds or GRACE_SECONDS):
        return ""
    return f"was last renewed at {lease.spec.renew_time} by {lease.spec.holder_identity}, {age:.0f} s ago"
