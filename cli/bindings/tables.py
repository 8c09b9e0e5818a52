"""The table of `kubectl gpu bindings`: one row per binding."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from cli.bindings.report import BindingsReport, CardBinding, Problem
from cli.tables import NOTHING, Table, age, listed

_UNKNOWN: Final = "-"
_PODS_SHOWN: Final = 2
_NAMES_SHOWN: Final = 3
_PROBLEMS_SHOWN: Final = 10


def of_bindings(report: BindingsReport, *, wide: bool, now: float) -> Table:
    """Return one row per binding; the wide table adds all pods, names and ages at Unix time `now`."""
    headers = ["CARD", "NODE", "APP", "OWNER", "NAMESPACE", "MEMORY", "MODE", "PODS"]
    headers += ["BINDING", "AGE"] if wide else []
    return Table(headers, [_row(each, wide=wide, now=now) for each in report.bindings])


def notes(report: BindingsReport) -> Iterator[str]:
    """Yield the problems, which the table does not show; after ten only how many more there are."""
    if not report.bindings:
        yield "no GPUBindings found"
    yield from (note_of(problem) for problem in report.problems[:_PROBLEMS_SHOWN])
    if len(report.problems) > _PROBLEMS_SHOWN:
        yield f"and {len(report.problems) - _PROBLEMS_SHOWN} more; -o json has all of them"


def note_of(problem: Problem) -> str:
    """Return the text of a problem, with the names of its bindings."""
    if not problem.bindings:
        return problem.message
    kind = "GPUBinding" if len(problem.bindings) == 1 else "GPUBindings"
    return f"{kind} {listed(problem.bindings, shown=_NAMES_SHOWN)}: {problem.message}"


def _row(binding: CardBinding, *, wide: bool, now: float) -> list[str]:
    row = [
        binding.card,
        binding.node or NOTHING,
        binding.app,
        binding.owner or NOTHING,
        binding.namespace or NOTHING,
        _memory(binding),
        binding.share_mode or _UNKNOWN,
        listed(binding.pods, shown=None if wide else _PODS_SHOWN),
    ]
    return [*row, binding.name, _age(binding.created, now)] if wide else row


def _memory(binding: CardBinding) -> str:
    if binding.memory_mib is not None:
        return f"{binding.memory_mib} MiB"
    return "invalid" if binding.memory else NOTHING


def _age(created: str, now: float) -> str:
    return age(now - datetime.fromisoformat(created).timestamp()) if created else _UNKNOWN
