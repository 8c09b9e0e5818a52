"""Selectors of nodes and labels, taints and tolerations, as kube-scheduler reads them."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from scheduler.objects import Expression, LabelSelector, Node, NodeSelector, PodSpec, Taint, Term, Toleration

_BLOCKING: Final = ("NoSchedule", "NoExecute")
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
"""What Go parses as an integer. Python accepts more, and raises an exception at 4,300 digits."""

Matcher = Callable[[Node], bool]
"""Whether a pod's nodeSelector and required node affinity match a node."""


class _Test(msgspec.Struct, frozen=True, gc=False):
    """An expression with its values in a set, for fast lookup."""

    key: str
    operator: str
    values: frozenset[str]


_Tests = tuple[tuple[_Test, ...], tuple[_Test, ...]]
"""The expressions of a term over labels, and those over fields."""

Selector = tuple[Expression, ...] | None
"""A label selector: all expressions must hold. An empty selector matches everything, None matches nothing."""


def node_matcher(spec: PodSpec) -> Matcher:
    """Return the test of the pod's nodeSelector and required node affinity, compiled once for many nodes."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    wanted = spec.node_selector.items()
    terms = None
    if affinity is not None and affinity.required is not None:
        terms = _compile_terms(affinity.required)

    def matches(node: Node) -> bool:
        labels = node.metadata.labels
        if any(labels.get(key) != value for key, value in wanted):
            return False
        return terms is None or any(_holds(term, node) for term in terms)

    return matches


def label_matcher(selector: NodeSelector) -> Callable[[Mapping[str, str]], bool]:
    """Return the test of a node selector that sees only the labels of a node, as that of a PersistentVolume does."""
    terms = _compile_terms(selector)

    def matches(labels: Mapping[str, str]) -> bool:
        return any(
            all(_matches(each, labels) for each in on_labels) and all(_matches(each, {}) for each in on_fields)
            for on_labels, on_fields in terms
        )

    return matches


def untolerated_taint(spec: PodSpec, node: Node) -> Taint | None:
    """Return the first taint that the pod does not tolerate, or None if it tolerates them all."""
    for taint in node.spec.taints:
        if taint.effect in _BLOCKING and not any(_tolerates(each, taint) for each in spec.tolerations):
            return taint
    return None


def tolerates_unschedulable(spec: PodSpec) -> bool:
    """Whether the pod may run on an unschedulable node, because it tolerates the taint that stands for it."""
    return any(_tolerates(each, _CORDON) for each in spec.tolerations)


def tolerates(spec: PodSpec, taint: Taint) -> bool:
    """Whether the pod tolerates a taint."""
    return any(_tolerates(each, taint) for each in spec.tolerations)


def term_matcher(term: Term) -> Matcher | None:
    """Return the test of one node selector term, compiled once for many nodes; None for an empty term.

    An empty term matches no node.
    """
    if not term.match_expressions and not term.match_fields:
        return None
    compiled = (_compile(term.match_expressions), _compile(term.match_fields))
    return lambda node: _holds(compiled, node)


def label_selector(selector: LabelSelector | None) -> Selector:
    """Read a label selector."""
    if selector is None:
        return None
    return (*of_labels(selector.match_labels), *selector.match_expressions)


def of_labels(labels: Mapping[str, str]) -> tuple[Expression, ...]:
    """Return the expressions that match objects with these labels."""
    return tuple(Expression(key, "In", (value,)) for key, value in labels.items())


def accepts(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `selector` matches an object with these labels."""
    return selector is not None and all(_matches(each, labels) for each in selector)


def _compile_terms(selector: NodeSelector) -> tuple[_Tests, ...]:
    # An empty term matches no node.
    return tuple(
        (_compile(term.match_expressions), _compile(term.match_fields))
        for term in selector.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def _compile(expressions: Iterable[Expression]) -> tuple[_Test, ...]:
    return tuple(_Test(each.key, each.operator, frozenset(each.values)) for each in expressions)


def _holds(term: _Tests, node: Node) -> bool:
    on_labels, on_fields = term
    labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
    return all(_matches(each, labels) for each in on_labels) and all(_matches(each, fields) for each in on_fields)


def _matches(expression: Expression | _Test, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(expression.values) != 1:
                return False
            number, limit = _integer(value), _integer(next(iter(expression.values)))
            if number is None or limit is None:
                return False
            return number > limit if expression.operator == "Gt" else number < limit
        case _:
            return False


def _integer(text: str) -> int | None:
    """Return the integer of 64 bits in `text`, or None if it is not one."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return False
