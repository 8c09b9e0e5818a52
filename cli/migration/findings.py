"""What was found, how bad it is, and what to do about it; findings that say the same are one."""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

Severity = Literal["blocks", "changes", "notes"]
"""`blocks`: to be done before the switch; `changes`: will be different after it; `notes`: good to know."""
SEVERITIES: Final[tuple[Severity, ...]] = ("blocks", "changes", "notes")


class Finding(msgspec.Struct, frozen=True, rename={"next_step": "nextStep"}):
    """One thing about one or more objects.

    Attributes:
        severity: how bad it is.
        objects: as people write them: `node n1`, `pod team/train-0`, `Deployment team/web`.
        what: what is the case, without a full stop.
        next_step: what to do; empty where nothing is to be done.
    """

    severity: Severity
    objects: tuple[str, ...]
    what: str
    next_step: str = ""


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Answer the findings by severity; those that differ in nothing but their objects are one."""
    groups: dict[tuple[Severity, str, str], list[str]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.what, finding.next_step), []).extend(finding.objects)
    found = [Finding(key[0], tuple(sorted(set(objects))), key[1], key[2]) for key, objects in groups.items()]
    return tuple(sorted(found, key=lambda finding: (SEVERITIES.index(finding.severity), finding.objects)))
