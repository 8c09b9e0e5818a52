"""The whole judgement of a survey, and how it is told to people."""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from allocation.names import ALLOCATION, HAMI_ALLOCATED
from cli.migration import hami_objects, installation, namespaces, nodes, planned, running
from cli.migration.findings import SEVERITIES, Finding, Severity, grouped
from cli.migration.hami_objects import Plugin
from cli.migration.nodes import NodeVerdict
from cli.migration.planned import Planned
from cli.migration.survey import Rules, Survey, Unread, hards
from scheduler.objects import Pod

_SHOWN = 3


class Summary(msgspec.Struct, frozen=True):
    """Numbers: nodes by mode, running GPU pods by how they are counted, new ones by what becomes of them."""

    nodes: dict[str, int]
    running: dict[str, int]
    new: dict[str, int]
    held: int
    findings: dict[Severity, int]


class Report(msgspec.Struct, frozen=True):
    """What `kubectl gpu preflight -o json` prints; `mode` is `loop` or `extender`."""

    mode: str
    namespace: str
    installed: bool
    summary: Summary
    nodes: tuple[NodeVerdict, ...]
    findings: tuple[Finding, ...]

    @property
    def is_clear(self) -> bool:
        """Whether nothing is to be done before the switch."""
        return not self.summary.findings["blocks"]

    def text(self, *, headers: bool = True) -> str:
        """Answer the report for people: with `headers` the summary, then what was found, the worst first."""
        return "".join(f"{line}\n" for line in (*(self._head() if headers else ()), *self._body()))

    def _head(self) -> Iterator[str]:
        where = f" (pods of namespace {self.namespace} only)" if self.namespace else ""
        many = {severity: self.summary.findings[severity] for severity in SEVERITIES}
        yield f"{_plural(many['blocks'], 'thing')} to do first, {_plural(many['changes'], 'change')}, " + _plural(
            many["notes"], "note"
        )
        yield f"mode: {self.mode}; Tranche is {'' if self.installed else 'not '}installed{where}"
        yield f"nodes: {_counts(self.summary.nodes)}"
        yield f"running GPU pods: {_counts(self.summary.running)}"
        held = f"; {self.summary.held} of them held in loop mode" if self.summary.held else ""
        yield f"new GPU pods, by template: {_counts(self.summary.new)}{held}"

    def _body(self) -> Iterator[str]:
        for severity in SEVERITIES:
            found = [finding for finding in self.findings if finding.severity == severity]
            if not found:
                continue
            yield ""
            yield severity.upper()
            for finding in found:
                yield f"  {_objects(finding.objects)}"
                yield f"    {finding.what}"
                if finding.next_step:
                    yield f"    -> {finding.next_step}"


def judge(survey: Survey, rules: Rules) -> Report:
    """Answer what the switch by these rules would change."""
    resource = rules.allocation.resources.count
    survey, pods = _decoded(survey)
    hami = _hami_names(pods)
    counted = running.judge(pods, rules.allocation)
    quotas = hards(survey.quotas)
    plans = (*planned.of_workloads(survey.workloads), *planned.of_pods(survey.pods, hami=hami))
    new = planned.judge(plans, rules, quotas=quotas, hami=hami)
    verdicts, of_nodes = nodes.judge(survey, resource=resource, plugins=_plugins(pods), holders=dict(counted.nodes))
    has_hami_nodes = any(verdict.mode == "HAMi's plugin" for verdict in verdicts)
    findings = grouped(
        (
            *installation.judge(survey, rules, hami=hami, has_hami_nodes=has_hami_nodes),
            *of_nodes,
            *counted.findings,
            *new.findings,
            *namespaces.judge(survey, dict(new.namespaces + counted.namespaces), rules.allocation.resources),
        )
    )
    return Report(
        mode="extender" if rules.extender else "loop",
        namespace=survey.namespace,
        installed=installation.is_installed(survey),
        summary=_summary(verdicts, counted.counted, new, findings),
        nodes=verdicts,
        findings=findings,
    )


def _summary(
    verdicts: tuple[NodeVerdict, ...],
    counted: Mapping[running.Counted, int],
    new: Planned,
    findings: tuple[Finding, ...],
) -> Summary:
    severities = Counter(finding.severity for finding in findings)
    return Summary(
        nodes=dict(sorted(Counter(verdict.mode for verdict in verdicts).items())),
        running={str(how): count for how, count in sorted(counted.items())},
        new=dict(sorted(new.outcomes.items())),
        held=new.held,
        findings={severity: severities[severity] for severity in SEVERITIES},
    )


def _decoded(survey: Survey) -> tuple[Survey, list[Pod]]:
    """Answer the pods that can be read, and the survey with those that cannot noted."""
    pods, raws, unread = [], [], list(survey.unread)
    for raw in survey.pods:
        try:
            pods.append(msgspec.json.decode(raw, type=Pod))
            raws.append(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            unread.append(Unread("pods", f"a pod cannot be read: {error}"))
    return msgspec.structs.replace(survey, pods=raws, unread=unread), pods


def _hami_names(pods: list[Pod]) -> frozenset[str]:
    """Answer by which names HAMi's scheduler has placed pods here, its chart's name among them."""
    placed = {
        pod.spec.scheduler_name
        for pod in pods
        if HAMI_ALLOCATED in pod.metadata.annotations and ALLOCATION not in pod.metadata.annotations
    }
    return frozenset({*placed, hami_objects.SCHEDULER_NAME} - {"", "default-scheduler"})


def _plugins(pods: list[Pod]) -> dict[str, frozenset[Plugin]]:
    """Answer whose device plugins run on which node."""
    found: dict[str, frozenset[Plugin]] = {}
    for pod in pods:
        plugin = hami_objects.plugin_of(pod.metadata.name, pod.metadata.labels)
        if plugin is not None and pod.spec.node_name and not pod.finished:
            found[pod.spec.node_name] = found.get(pod.spec.node_name, frozenset()) | {plugin}
    return found


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items()) or "none"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _objects(objects: tuple[str, ...]) -> str:
    more = f" and {len(objects) - _SHOWN} more" if len(objects) > _SHOWN else ""
    return ", ".join(objects[:_SHOWN]) + more
