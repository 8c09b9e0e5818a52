"""Find what an administrator must know about bindings."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, get_args

from allocation.bindings import problems
from allocation.bindings.binding import AppIdentity, Binding, BindingSpec
from allocation.bindings.grants import in_precedence
from allocation.bindings.problems import BindingProblem
from allocation.label_selector import label_selector
from allocation.settings import BindingSettings
from cli.bindings.report import KnownCard, Problem, ProblemType
from cli.tables import listed

_APPS_SHOWN: Final = 3


def find(
    bindings: Collection[Binding], cards: Mapping[str, KnownCard], settings: BindingSettings
) -> tuple[Problem, ...]:
    """Return the problems of bindings, the most severe first; `cards` are those that nodes report, by UUID."""
    granting: defaultdict[str, list[Binding]] = defaultdict(list)
    for each in in_precedence(bindings):
        if _grants(each.spec, settings):
            granting[each.spec.card].append(each)
    found = [
        *_not_applied(settings),
        *_of_single_bindings(bindings, cards, settings),
        *(problem for card in granting for problem in _of_card(card, granting[card], cards.get(card))),
    ]
    severity: tuple[ProblemType, ...] = get_args(ProblemType)
    return tuple(sorted(found, key=lambda problem: (severity.index(problem.type), problem.bindings)))


def _grants(spec: BindingSpec, settings: BindingSettings) -> bool:
    """Whether a binding gives its card to any pod, if a node has the card."""
    found = problems.of_binding(spec, is_known=True)
    return not {"InvalidMemory", "NoSelector"} & {*found} and not (
        settings.require_namespace and "NoNamespace" in found
    )


def _not_applied(settings: BindingSettings) -> Iterator[Problem]:
    if settings.mode == "off":
        text = "bindings are not applied: allocation.bindings.mode is off; set it to labelled or required"
        yield Problem("NotApplied", (), text)


def _of_single_bindings(
    bindings: Iterable[Binding], cards: Mapping[str, KnownCard], settings: BindingSettings
) -> Iterator[Problem]:
    names: defaultdict[tuple[BindingProblem, str], list[str]] = defaultdict(list)
    for each in bindings:
        for problem in problems.of_binding(each.spec, is_known=each.spec.card in cards):
            names[problem, _text(problem, each.spec, settings)].append(each.name)
    for (problem, text), affected in names.items():
        yield Problem(problem, tuple(sorted(affected)), text)


def _text(problem: BindingProblem, spec: BindingSpec, settings: BindingSettings) -> str:
    match problem:
        case "UnknownCard":
            return f"no node reports card {spec.card}, so pods wait for it; see 'kubectl gpu top --cards'"
        case "InvalidMemory":
            return f"spec.memory: {problems.memory_error(spec)}, so no pod gets the card; write MiB, as in 24000"
        case "NoSelector":
            return (
                "spec.podSelector is missing, so no pod gets the card; an empty one selects all pods of the application"
            )
        case "NoNamespace" if settings.require_namespace:
            return (
                "spec.namespace is missing, which allocation.bindings.require_namespace demands: no pod gets the card"
            )
        case "NoNamespace":
            return (
                "spec.namespace is missing, so the labels of pods in every namespace are trusted;"
                " allocation.bindings.require_namespace ends that"
            )


def _of_card(uuid: str, granting: Sequence[Binding], card: KnownCard | None) -> Iterator[Problem]:
    """Return the problems of the bindings that give one card, in precedence."""
    for decisive, other in _overlapping(granting):
        text = f"give card {uuid} to the same pods of app {other.spec.app_name}: {decisive.name} decides for these"
        yield Problem("Duplicate", (decisive.name, other.name), text)
    if card is None:
        return
    names = tuple(sorted(each.name for each in granting))
    if card.mode == "exclusive" and any(not _overlap(*pair) for pair in combinations(granting, 2)):
        apps = sorted({_app(each.spec) for each in granting})
        text = f"card {uuid} is exclusive, but bound to {listed(apps, shown=_APPS_SHOWN)}: one at a time can use it"
        yield Problem("ExclusiveCardShared", names, text)
    bound = _bound_memory(granting)
    if card.mode == "memory-slicing" and bound > card.memory_mib:
        text = (
            f"set {bound} MiB of card {uuid}, which has {card.memory_mib} MiB: their pods do not fit at the same time"
        )
        yield Problem("MemoryExceeded", names, text)


def _overlapping(granting: Sequence[Binding]) -> Iterator[tuple[Binding, Binding]]:
    """Return each binding that another one takes precedence over, with the first such one."""
    for position, each in enumerate(granting):
        decisive = next((earlier for earlier in granting[:position] if _overlap(earlier, each)), None)
        if decisive is not None:
            yield decisive, each


def _overlap(one: Binding, other: Binding) -> bool:
    """Whether a pod can belong to the applications of both bindings."""
    first, second = one.spec, other.spec
    return (
        first.app_name == second.app_name
        and (not first.owner or not second.owner or first.owner == second.owner)
        and (not first.namespace or not second.namespace or first.namespace == second.namespace)
    )


def _bound_memory(granting: Sequence[Binding]) -> int:
    """Return the MiB that bindings set together, without those that never decide."""
    amounts: dict[object, int] = {}
    for each in granting:
        spec = each.spec
        selector = frozenset(label_selector(spec.pod_selector) or ())
        pods = (spec.app_name, spec.owner, spec.namespace, selector)
        amounts.setdefault(pods, spec.memory_mib() or 0)
    return sum(amounts.values())


def _app(spec: BindingSpec) -> str:
    identity = AppIdentity(spec.app_name, spec.owner, spec.namespace)
    return f"{identity} in namespace {spec.namespace}" if spec.namespace else str(identity)
