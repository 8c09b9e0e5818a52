"""What becomes of each pod that is yet to be made: from a template, or as one that waits and must be made anew."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

from allocation import names
from allocation.errors import AllocationError
from allocation.request import asks_for_gpu
from cli import pod_templates
from cli.migration.findings import Finding
from cli.migration.survey import Rules
from scheduler import support
from scheduler.objects import PodSpec
from webhook import review
from webhook.mutation import Mutation, Quotas, mutate
from webhook.patch import Operation
from webhook.refusal import RefusedError
from webhook.review import Pod, UnreadablePodError

Outcome = Literal["mutated", "unchanged", "refused", "left alone"]

UNSERVED: Final = ("kube-system", "kube-public", "kube-node-lease", names.SYSTEM_NAMESPACE)
"""Namespaces of which admission is never asked (manifests/base/webhook.yaml)."""
_KNOWN_CONTROLLERS: Final = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"}
)
_FINISHED: Final = ("Complete", "Failed")


class Plan(msgspec.Struct, frozen=True):
    """A pod that is to be made.

    Attributes:
        spoken: the object that makes it, as people write it.
        namespace: where.
        pod: `metadata` and `spec`.
        user: who will create it; empty where that is a person.
        waits: whether it is there already, without a node.
        owned: whether a plan of its controller says the same, so that only its waiting is told.
    """

    spoken: str
    namespace: str
    pod: dict[str, Any]
    user: str = ""
    waits: bool = False
    owned: bool = False


class Planned(msgspec.Struct, frozen=True):
    """What admission would make of all plans with a GPU, and where those are."""

    outcomes: Counter[Outcome]
    held: int
    namespaces: Counter[str]
    findings: tuple[Finding, ...]


class _Scheduling(msgspec.Struct):
    """Of a plan, what the scheduler reads."""

    spec: PodSpec


def of_workloads(workloads: Iterable[dict[str, Any]]) -> Iterator[Plan]:
    """Answer the plans of controllers that still make pods and that no other one made."""
    for document in workloads:
        metadata = document.get("metadata") or {}
        if _owner(metadata) in _KNOWN_CONTROLLERS or _is_over(document):
            continue
        namespace, kind = str(metadata.get("namespace", "")), str(document["kind"])
        user = f"system:serviceaccount:kube-system:{kind.lower()}-controller"
        for template in pod_templates.of(document):
            yield Plan(f"{kind} {namespace}/{metadata.get('name', '')}", namespace, template.pod, user)


def of_pods(pods: Iterable[msgspec.Raw], *, hami: frozenset[str]) -> Iterator[Plan]:
    """Answer the pods that wait for a node, as who makes them anew would send them.

    `hami` are names of HAMi's scheduler, which its webhook has written into them, as its scheduler has its annotations.
    """
    for raw in pods:
        pod = json.loads(bytes(raw))
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
        if spec.get("nodeName") or status.get("phase", "Pending") != "Pending" or metadata.get("deletionTimestamp"):
            continue
        if spec.get("schedulerName") == names.SCHEDULER_NAME:
            continue  # it is ours already
        if spec.get("schedulerName") in hami:
            spec = {**spec, "schedulerName": ""}
        written = metadata.get("annotations") or {}
        kept = {key: value for key, value in written.items() if not names.is_output_key(key)}
        namespace = metadata["namespace"]
        yield Plan(
            f"pod {namespace}/{metadata['name']}",
            namespace,
            {"metadata": {**metadata, "annotations": kept}, "spec": spec},
            waits=True,
            owned=_owner(metadata) in _KNOWN_CONTROLLERS,
        )


def judge(plans: Iterable[Plan], rules: Rules, *, quotas: Mapping[str, Quotas], hami: frozenset[str]) -> Planned:
    """Judge every plan as admission would in a namespace that opted in, and as the scheduler's loop would."""
    outcomes: Counter[Outcome] = Counter()
    namespaces: Counter[str] = Counter()
    findings: list[Finding] = []
    held = 0
    for plan in plans:
        try:
            pod = review.decode_pod(msgspec.Raw(json.dumps(plan.pod).encode()))
            if not _asks(pod, rules):
                continue
            outcome, found = _admission(plan, pod, rules, quotas.get(plan.namespace, {}), hami)
        except (UnreadablePodError, AllocationError, RefusedError) as error:
            outcome = "refused"
            found = [Finding("blocks", (plan.spoken,), f"would be refused: {error}", "change it before the switch")]
        namespaces[plan.namespace] += 1
        if plan.waits and outcome != "left alone":
            findings.append(_waiting(plan))
        if plan.owned:
            continue
        outcomes[outcome] += 1
        findings += found
        field = "" if rules.extender or outcome not in ("mutated", "unchanged") else _unsupported(plan)
        if field:
            held += 1
            what = f"would be held: {support.remedy(field)}"
            findings.append(Finding("blocks", (plan.spoken,), what, "see docs/extender.md"))
    return Planned(outcomes, held, namespaces, tuple(findings))


def _waiting(plan: Plan) -> Finding:
    return Finding(
        "changes",
        (plan.spoken,),
        "waits for a node and was created before the switch: a pod is not admitted twice",
        "delete it after the switch, so that it is made anew",
    )


def _admission(
    plan: Plan, pod: Pod, rules: Rules, quotas: Quotas, hami: frozenset[str]
) -> tuple[Outcome, list[Finding]]:
    """Answer what admission does.

    Raises:
        RefusedError: as `mutate` does, and so does AllocationError.
    """
    spoken = (plan.spoken,)
    if plan.namespace in UNSERVED:
        what = f"admission never serves namespace {plan.namespace}: it gets no card of ours"
        return "left alone", [Finding("changes", spoken, what, "move it to another namespace")]
    mutation = mutate(pod, username=plan.user, allocation=rules.allocation, settings=rules.webhook, quotas=quotas)
    scheduler = pod.spec.scheduler_name or ""
    if not mutation.operations and scheduler != names.SCHEDULER_NAME:
        return "left alone", [_left_alone(spoken, scheduler, rules, hami)]
    warned = [Finding("changes", spoken, f"admission would warn: {text}") for text in mutation.warnings]
    if not mutation.operations:
        return "unchanged", warned
    return "mutated", [Finding("changes", spoken, f"admission would change its pods: {_change(mutation)}"), *warned]


def _left_alone(spoken: tuple[str, ...], scheduler: str, rules: Rules, hami: frozenset[str]) -> Finding:
    if scheduler in hami:
        return Finding(
            "blocks",
            spoken,
            f"spec.schedulerName {scheduler!r} gives it to HAMi's scheduler, which places no GPU pod after the switch",
            f"set webhook.aliases: [{scheduler}] in Tranche's configuration (told here by --config), or remove it",
        )
    if scheduler not in ("", "default-scheduler", *rules.webhook.aliases, *rules.webhook.takeover):
        return Finding(
            "changes",
            spoken,
            f"spec.schedulerName {scheduler!r} gives it to another scheduler: a node on which it runs is closed",
            f"keep it on nodes without our agent, or set webhook.takeover: [{scheduler}]",
        )
    return Finding(
        "changes", spoken, "its own label opts it out: a node on which it runs is closed", "keep it on other nodes"
    )


def _change(mutation: Mutation) -> str:
    """Answer what changes, in words that are the same for pods that change alike."""
    return ", ".join(dict.fromkeys(map(_part, mutation.operations)))


def _part(operation: Operation) -> str:
    path = [step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]]
    if path[:2] == ["spec", "schedulerName"]:
        return f"schedulerName {names.SCHEDULER_NAME}"
    if path[:2] == ["spec", "runtimeClassName"]:
        return "runtimeClassName"
    if "env" in path:
        return "its GPU variables refer to annotations"
    if "resources" in path:
        return f"limits {path[-1]}" if path[-1] not in ("resources", "limits", "requests") else "limits"
    return "annotations"


def _asks(pod: Pod, rules: Rules) -> bool:
    return any(
        asks_for_gpu(container, rules.allocation) for container in (*pod.spec.init_containers, *pod.spec.containers)
    )


def _unsupported(plan: Plan) -> str:
    try:
        return support.unsupported(msgspec.convert(plan.pod, _Scheduling).spec)
    except msgspec.ValidationError as error:
        return f"spec ({error})"


def _owner(metadata: Mapping[str, Any]) -> str:
    owners = metadata.get("ownerReferences") or ()
    return next((str(owner.get("kind")) for owner in owners if owner.get("controller")), "")


def _is_over(document: Mapping[str, Any]) -> bool:
    """Whether it is a Job that has ended, which makes no more pods."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return document["kind"] == "Job" and any(
        each.get("type") in _FINISHED and each.get("status") == "True" for each in conditions
    )
