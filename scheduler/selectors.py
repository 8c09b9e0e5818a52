"""Selectors of nodes and labels, taints and tolerations, as kube-scheduler reads them."""

import re
from collections.abc import Mapping
from typing import Final

from scheduler.objects import Expression, LabelSelector, Node, PodSpec, Taint, Term, Toleration

_BLOCKING: Final = ("NoSchedule", "NoExecute")
_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "NoSchedule")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}")
"""What Go reads as an integer; Python would take more, and raise at 4,300 digits."""

Selector = tuple[Expression, ...] | None
"""A label selector: all expressions must hold. An empty one takes everything, None takes nothing."""


def matches_selector(spec: PodSpec, node: Node) -> bool:
    """Whether the pod's nodeSelector and required node affinity accept `node`."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_holds(term, node) for term in affinity.required.node_selector_terms)


def untolerated_taint(spec: PodSpec, node: Node) -> Taint | None:
    """Answer the first taint that keeps the pod away, None where it bears them all."""
    for taint in node.spec.taints:
        if taint.effect in _BLOCKING and not any(_tolerates(each, taint) for each in spec.tolerations):
            return taint
    return None


def bears_cordon(spec: PodSpec) -> bool:
    """Whether the pod may run on a node that is marked unschedulable, because it tolerates that mark as a taint."""
    return any(_tolerates(each, _CORDON) for each in spec.tolerations)


def label_selector(selector: LabelSelector | None) -> Selector:
    """Read a label selector."""
    if selector is None:
        return None
    return (*of_labels(selector.match_labels), *selector.match_expressions)


def of_labels(labels: Mapping[str, str]) -> tuple[Expression, ...]:
    """Answer the expressions that hold where something has these labels."""
    return tuple(Expression(key, "In", (value,)) for key, value in labels.items())


def accepts(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether `selector` takes what has these labels."""
    return selector is not None and all(_matches(each, labels) for each in selector)


def _holds(term: Term, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_matches(each, node.metadata.labels) for each in term.match_expressions) and all(
        _matches(each, fields) for each in term.match_fields
    )


def _matches(expression: Expression, labels: Mapping[str, str]) -> bool:
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
            mine, limit = _integer(value), _integer(expression.values[0])
            if mine is None or limit is None:
                return False
            return mine > limit if expression.operator == "Gt" else mine < limit
        case _:
            return False


def _integer(text: str) -> int | None:
    """Read an integer of 64 bits, None where it is none."""
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
