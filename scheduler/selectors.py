"""Node selectors, node affinity, taints: whether a node is one that the pod may run on."""

from scheduler.objects import Expression, Node, PodSpec, Taint, Term, Toleration

_BLOCKING = ("NoSchedule", "NoExecute")


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


def _holds(term: Term, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(_matches(each, node.metadata.labels) for each in term.match_expressions) and all(
        _matches(each, fields) for each in term.match_fields
    )


def _matches(expression: Expression, labels: dict[str, str]) -> bool:
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
            try:
                difference = int(value or "") - int(expression.values[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if expression.operator == "Gt" else difference < 0
        case _:
            return False


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.key == taint.key and toleration.value == taint.value
