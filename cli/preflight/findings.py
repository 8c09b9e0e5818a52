"""The findings of a preflight: a severity, the objects, the facts and the next step."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["blocks", "changes", "notes"]
"""`blocks`: needs action before the switch; `changes`: will be different after it; `notes`: good to know."""
SEVERITIES: Final[tuple[Severity, ...]] = ("blocks", "changes", "notes")


class Finding(msgspec.Struct, frozen=True, rename={"next_step": "nextStep"}):
    """One statement about one or more objects.

    Attributes:
        severity: whether it blocks the switch.
        objects: kind and name, such as `node n1`, `pod team/train-0` or `Deployment team/web`.
        what: the statement, without a full stop.
        next_step: what to do, or empty if nothing needs to be done.
    """

    severity: Severity
    objects: tuple[str, ...]
    what: str
    next_step: str = ""


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings sorted by severity; findings that differ only in their objects become one."""
    groups: dict[tuple[Severity, str, str], list[str]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.what, finding.next_step), []).extend(finding.objects)
    merged = [Finding(key[0], tuple(sorted(set(objects))), key[1], key[2]) for key, objects in groups.items()]
    return tuple(sorted(merged, key=lambda finding: (SEVERITIES.index(finding.severity), finding.objects)))
