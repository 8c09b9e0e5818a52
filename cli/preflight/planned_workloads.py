"""What admission does to planned pods: those of templates, and those that replace pods that wait for a node."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from allocation import names
from allocation.claim import ClaimSpec
from allocation.errors import AllocationError
from allocation.request import requests_gpu
from cli.installation.rules import Rules
from cli.preflight.findings import Finding
from cli.preflight.planned_pods import PlannedPod
from scheduler.filters import unsupported_fields
from scheduler.pod_spec.spec import PodSpec
from webhook import review
from webhook.mutation import Mutation, claim_name, mutate
from webhook.patch import Operation
from webhook.quotas import Quotas
from webhook.review import ForbiddenPodError, Pod, UnreadablePodError

Outcome = Literal["mutated", "unchanged", "refused", "left alone", "unknown"]
"""What admission does to a pod; unknown if it has a GpuClaim, and the claims could not be read."""


class PlannedSummary(msgspec.Struct, frozen=True):
    """The outcomes of admission for all planned GPU pods, and the number of these pods by namespace."""

    outcomes: Counter[Outcome]
    held: int
    namespaces: Counter[str]
    findings: tuple[Finding, ...]


class _Context(msgspec.Struct, frozen=True):
    """What admission depends on, other than the pod; the parameters of `evaluate`."""

    rules: Rules
    quotas: Mapping[str, Mapping[str, Mapping[str, str]]]
    claims: Mapping[tuple[str, str], ClaimSpec] | None
    hami: frozenset[str]
    isolations: Mapping[str, str]


class _Scheduling(msgspec.Struct):
    """The part of a planned pod that the scheduler reads."""

    spec: PodSpec


def evaluate(
    pods_to_create: Iterable[PlannedPod],
    rules: Rules,
    *,
    quotas: Mapping[str, Mapping[str, Mapping[str, str]]],
    claims: Mapping[tuple[str, str], ClaimSpec] | None,
    hami: frozenset[str],
    isolations: Mapping[str, str] = MappingProxyType({}),
) -> PlannedSummary:
    """Evaluate each pod as admission in an opted-in namespace does, and as the scheduler's loop does.

    `quotas` are the `spec.hard` of the ResourceQuotas by namespace and name, `claims` the GpuClaims, None if they could
    not be read, and `isolations` the labels of namespaces for pods that choose none.
    """
    context = _Context(rules, quotas, claims, hami, isolations)
    outcomes: Counter[Outcome] = Counter()
    namespaces: Counter[str] = Counter()
    findings: list[Finding] = []
    held = 0
    for planned in pods_to_create:
        try:
            pod = review.decode_pod(msgspec.Raw(json.dumps(planned.pod).encode()))
            if not _requests_gpu(pod, rules):
                continue
            outcome, pod_findings = _outcome(planned, pod, context)
        except (UnreadablePodError, AllocationError, ForbiddenPodError) as error:
            outcome = "refused"
            pod_findings = [
                Finding("blocks", (planned.source,), f"would be refused: {error}", "change it before the switch")
            ]
        namespaces[planned.namespace] += 1
        if planned.waits and outcome != "left alone":
            findings.append(_waiting(planned))
        if planned.owned:
            continue
        outcomes[outcome] += 1
        findings += pod_findings
        field = "" if rules.extender or outcome not in ("mutated", "unchanged") else _unsupported(planned, rules)
        if field and not (field == unsupported_fields.CLAIMS and rules.allocation.hands_over):
            held += 1
            what = f"would be held: {unsupported_fields.remedy(field)}"
            findings.append(Finding("blocks", (planned.source,), what, "see docs/modes.md"))
    return PlannedSummary(outcomes, held, namespaces, tuple(findings))


def _waiting(planned: PlannedPod) -> Finding:
    return Finding(
        "changes",
        (planned.source,),
        "waits for a node and was created before the switch: a pod is not admitted twice",
        "delete it after the switch so that it is created again",
    )


def _outcome(planned: PlannedPod, pod: Pod, context: _Context) -> tuple[Outcome, list[Finding]]:
    """Return the outcome of admission, which needs the GpuClaim if the pod names one, and the findings about it.

    Raises:
        ForbiddenPodError, AllocationError: admission rejects the pod.
    """
    subjects, namespace = (planned.source,), planned.namespace
    if namespace in context.rules.webhook.excluded_namespaces:
        what = f"admission is never called for namespace {namespace}: it gets no card from Tranche"
        return "left alone", [Finding("changes", subjects, what, "move it to another namespace")]
    name = claim_name(pod, username=planned.user, settings=context.rules.webhook)
    if name is None:
        return _admission(planned, pod, context, None)
    if context.claims is None:
        what = f"names GpuClaim {name}, and GpuClaims cannot be read: its admission was not evaluated"
        return "unknown", [Finding("changes", subjects, what, "use preflight with the right to list gpuclaims")]
    claim = context.claims.get((namespace, name))
    if claim is None:
        what = f"would be refused: GpuClaim {name} does not exist in namespace {namespace}"
        step = "create the claim, as soon as GpuClaims are defined in the cluster"
        return "refused", [Finding("blocks", subjects, what, step)]
    return _admission(planned, pod, context, claim)


def _admission(
    planned: PlannedPod, pod: Pod, context: _Context, claim: ClaimSpec | None
) -> tuple[Outcome, list[Finding]]:
    subjects, rules = (planned.source,), context.rules
    mutation = mutate(
        pod,
        username=planned.user,
        allocation=rules.allocation,
        settings=rules.webhook,
        quotas=Quotas(context.quotas.get(planned.namespace, {})),
        claim=claim,
        isolation=context.isolations.get(planned.namespace, ""),
    )
    scheduler = pod.spec.scheduler_name or ""
    if not mutation.operations and scheduler not in names.SCHEDULER_NAMES:
        return "left alone", [_left_alone(subjects, scheduler, rules, context.hami)]
    warned = [Finding("changes", subjects, f"admission would warn: {text}") for text in mutation.warnings]
    if not mutation.operations:
        return "unchanged", warned
    return "mutated", [Finding("changes", subjects, f"admission would change its pods: {_change(mutation)}"), *warned]


def _left_alone(subjects: tuple[str, ...], scheduler: str, rules: Rules, hami: frozenset[str]) -> Finding:
    if scheduler in hami:
        return Finding(
            "blocks",
            subjects,
            f"spec.schedulerName {scheduler!r} assigns it to HAMi's scheduler, which places no GPU pods after the"
            " switch",
            f"set webhook.aliases: [{scheduler}] in Tranche's configuration (pass it to preflight with --config), or"
            " remove it",
        )
    if scheduler not in ("", "default-scheduler", *rules.webhook.aliases, *rules.webhook.takeover):
        return Finding(
            "changes",
            subjects,
            f"spec.schedulerName {scheduler!r} assigns it to another scheduler: a node on which it runs is closed",
            f"keep it on nodes without Tranche's agent, or set webhook.takeover: [{scheduler}]",
        )
    return Finding(
        "changes", subjects, "its own label opts it out: a node on which it runs is closed", "keep it on other nodes"
    )


def _change(mutation: Mutation) -> str:
    """Return the changes as text, the same text for pods with the same kind of changes."""
    return ", ".join(dict.fromkeys(map(_part, mutation.operations)))


def _part(operation: Operation) -> str:
    path = [step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]]
    if path[:2] == ["spec", "schedulerName"]:
        return f"schedulerName {operation.value}"
    if path[:2] == ["spec", "runtimeClassName"]:
        return "runtimeClassName"
    if path[:2] == ["spec", "nodeSelector"]:
        return "the nodeSelector of its GpuClaim"
    if "env" in path:
        return "its GPU variables refer to annotations"
    if "resources" in path:
        return f"limits {path[-1]}" if path[-1] not in ("resources", "limits", "requests") else "limits"
    return "annotations"


def _requests_gpu(pod: Pod, rules: Rules) -> bool:
    return names.CLAIM in (pod.metadata.annotations or {}) or any(
        requests_gpu(container, rules.allocation) for container in (*pod.spec.init_containers, *pod.spec.containers)
    )


def _unsupported(planned: PlannedPod, rules: Rules) -> str:
    try:
        spec = msgspec.convert(planned.pod, _Scheduling).spec
        return unsupported_fields.unsupported(spec, reads_pod_groups=rules.gangs.pod_groups)
    except msgspec.ValidationError as error:
        return f"spec ({error})"
