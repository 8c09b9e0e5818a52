"""The report of a preflight, and its text form."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from allocation.names import ALLOCATION, HAMI_ALLOCATED, ISOLATION
from cli.installation.rules import Rules
from cli.liveness.installation_check import INSTALL
from cli.liveness.liveness import Liveness
from cli.preflight import (
    dra,
    gpu_bindings,
    hami_objects,
    installation,
    namespaces,
    nodes,
    planned_pods,
    planned_workloads,
    running_pods,
)
from cli.preflight.cluster_snapshot import ClusterSnapshot, Unread, hards
from cli.preflight.findings import SEVERITIES, Finding, Severity, grouped
from cli.preflight.hami_objects import Plugin
from cli.preflight.nodes import NodeVerdict
from cli.preflight.planned_workloads import PlannedSummary
from scheduler.objects import Pod

_SHOWN = 3


class Summary(msgspec.Struct, frozen=True):
    """Counts: nodes by mode, running GPU pods by how they are counted, new pods by the outcome of admission."""

    nodes: dict[str, int]
    running: dict[str, int]
    new: dict[str, int]
    held: int
    findings: dict[Severity, int]


class Report(msgspec.Struct, frozen=True):
    """The output of `kubectl gpu preflight -o json`; `mode` is `loop` or `extender`."""

    liveness: Liveness | None
    mode: str
    namespace: str
    installed: bool
    summary: Summary
    nodes: tuple[NodeVerdict, ...]
    findings: tuple[Finding, ...]

    @property
    def is_clear(self) -> bool:
        """Whether no finding blocks the switch."""
        return not self.summary.findings["blocks"]

    def text(self, *, headers: bool = True) -> str:
        """Return the report as text: the summary unless `headers` is False, then the findings by severity."""
        return "".join(f"{line}\n" for line in (*(self._head() if headers else ()), *self._body()))

    def _head(self) -> Iterator[str]:
        where = f" (pods of namespace {self.namespace} only)" if self.namespace else ""
        if not self.installed:
            yield f"Tranche is not installed: no GPU pod is admitted or placed by it; {INSTALL}"
        elif broken := [part.name for part in self.liveness.problems] if self.liveness is not None else []:
            yield f"Tranche does not work: {', '.join(broken)} (see BLOCKS)"
        counts = {severity: self.summary.findings[severity] for severity in SEVERITIES}
        yield f"{_plural(counts['blocks'], 'thing')} to do first, {_plural(counts['changes'], 'change')}, " + _plural(
            counts["notes"], "note"
        )
        yield f"mode: {self.mode}; Tranche is {'' if self.installed else 'not '}installed{where}"
        yield f"nodes: {_counts(self.summary.nodes)}"
        yield f"running GPU pods: {_counts(self.summary.running)}"
        held = f"; {self.summary.held} of them held in loop mode" if self.summary.held else ""
        yield f"new GPU pods, by template: {_counts(self.summary.new)}{held}"

    def _body(self) -> Iterator[str]:
        for severity in SEVERITIES:
            findings = [finding for finding in self.findings if finding.severity == severity]
            if not findings:
                continue
            yield ""
            yield severity.upper()
            for finding in findings:
                yield f"  {_objects(finding.objects)}"
                yield f"    {finding.what}"
                if finding.next_step:
                    yield f"    -> {finding.next_step}"


def evaluate(snapshot: ClusterSnapshot, rules: Rules) -> Report:
    """Return the report on a switch to Tranche with these rules."""
    resource = rules.allocation.resources.count
    snapshot, pods = _decoded(snapshot)
    hami = _hami_names(pods)
    foreign = running_pods.left_by_another_scheduler(snapshot.pods)
    running = running_pods.evaluate(pods, rules.allocation, foreign=foreign)
    quotas = hards(snapshot.quotas)
    plans = (*planned_pods.of_workloads(snapshot.workloads), *planned_pods.of_pods(snapshot.pods, hami=hami))
    isolations = {each.metadata.name: each.metadata.labels.get(ISOLATION, "") for each in snapshot.namespaces}
    new = planned_workloads.evaluate(
        plans, rules, quotas=quotas, claims=snapshot.claim_specs(), hami=hami, isolations=isolations
    )
    verdicts, node_findings = nodes.evaluate(
        snapshot,
        resource=resource,
        runtime_class_name=rules.webhook.runtime_class_name,
        plugins=_plugins(pods),
        holders=dict(running.nodes),
    )
    is_installed = installation.is_installed(snapshot)
    has_hami_nodes = any(verdict.mode == "HAMi's plugin" for verdict in verdicts)
    findings = grouped(
        (
            *installation.evaluate(snapshot, rules, hami=hami, has_hami_nodes=has_hami_nodes),
            *(() if is_installed else installation.remains(pods)),
            *gpu_bindings.evaluate(snapshot, rules),
            *dra.evaluate(snapshot, rules),
            *node_findings,
            *nodes.without_cards(verdicts, snapshot, is_installed=is_installed),
            *running.findings,
            *new.findings,
            *namespaces.evaluate(
                snapshot, dict(new.namespaces + running.namespaces), rules.allocation.resources, rules.webhook
            ),
        )
    )
    return Report(
        liveness=snapshot.liveness,
        mode="extender" if rules.extender else "loop",
        namespace=snapshot.namespace,
        installed=is_installed,
        summary=_summary(verdicts, running.counted, new, findings),
        nodes=verdicts,
        findings=findings,
    )


def _summary(
    verdicts: tuple[NodeVerdict, ...],
    running: Mapping[running_pods.Counted, int],
    new: PlannedSummary,
    findings: tuple[Finding, ...],
) -> Summary:
    severities = Counter(finding.severity for finding in findings)
    return Summary(
        nodes=dict(sorted(Counter(verdict.mode for verdict in verdicts).items())),
        running={str(how): count for how, count in sorted(running.items())},
        new=dict(sorted(new.outcomes.items())),
        held=new.held,
        findings={severity: severities[severity] for severity in SEVERITIES},
    )


def _decoded(snapshot: ClusterSnapshot) -> tuple[ClusterSnapshot, list[Pod]]:
    """Return the snapshot without the pods that cannot be decoded, which become unread, and the decoded pods."""
    pods, raws, unread = [], [], list(snapshot.unread)
    for raw in snapshot.pods:
        try:
            pods.append(msgspec.json.decode(raw, type=Pod))
            raws.append(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            unread.append(Unread("pods", f"a pod cannot be read: {error}"))
    return msgspec.structs.replace(snapshot, pods=raws, unread=unread), pods


def _hami_names(pods: list[Pod]) -> frozenset[str]:
    """Return the scheduler names under which HAMi has placed pods here, and the name from HAMi's chart."""
    placed = {
        pod.spec.scheduler_name
        for pod in pods
        if HAMI_ALLOCATED in pod.metadata.annotations and ALLOCATION not in pod.metadata.annotations
    }
    return frozenset({*placed, hami_objects.SCHEDULER_NAME} - {"", "default-scheduler"})


def _plugins(pods: list[Pod]) -> dict[str, frozenset[Plugin]]:
    """Return the vendors of the device plugins that run on each node."""
    plugins: dict[str, frozenset[Plugin]] = {}
    for pod in pods:
        plugin = hami_objects.plugin_of(pod.metadata.name, pod.metadata.labels)
        if plugin is not None and pod.spec.node_name and not pod.finished:
            plugins[pod.spec.node_name] = plugins.get(pod.spec.node_name, frozenset()) | {plugin}
    return plugins


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items()) or "none"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _objects(objects: tuple[str, ...]) -> str:
    more = f" and {len(objects) - _SHOWN} more" if len(objects) > _SHOWN else ""
    return ", ".join(objects[:_SHOWN]) + more
