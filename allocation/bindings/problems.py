"""What is wrong with a single binding; the scheduler's metrics and `kubectl gpu bindings` use the same words."""

from typing import Literal

from allocation.bindings.binding import BindingSpec
from allocation.errors import AllocationError

BindingProblem = Literal["UnknownCard", "InvalidMemory", "NoSelector", "NoNamespace"]


def of_binding(spec: BindingSpec, *, is_known: bool) -> tuple[BindingProblem, ...]:
    """Return the problems of a binding; `is_known` says whether a node reports its card.

    The first three keep the card from every pod. Without a namespace the labels of pods in every namespace are trusted.
    """
    problems: list[tuple[BindingProblem, bool]] = [
        ("UnknownCard", not is_known),
        ("InvalidMemory", bool(memory_error(spec))),
        ("NoSelector", spec.pod_selector is None),
        ("NoNamespace", not spec.namespace),
    ]
    return tuple(problem for problem, is_present in problems if is_present)


def memory_error(spec: BindingSpec) -> str:
    """Return why the memory of a binding cannot be read; empty if it can, or if the binding sets none."""
    try:
        spec.memory_mib()
    except AllocationError as error:
        return str(error)
    return ""
