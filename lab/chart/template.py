"""Turn a manifest into a template: replace exact passages, and fail if one of them is not there."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The scheduler's ServiceAccount, wherever a manifest defines, uses or trusts it.
_ACCOUNT = re.compile(
    "(system:serviceaccount:tranche-system:|kind: ServiceAccount\n(?:metadata:\n  |    )name: |serviceAccountName: )"
    r"tranche-scheduler\b"
)
NOTICE = "{{- /* Generated from manifests/%s by `python -m lab.chart`. */ -}}\n"


class StalePassageError(Exception):
    """A passage that a template replaces is not in its manifest as often as expected."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement.

    Attributes:
        old: a passage of the manifest.
        new: what the template has instead.
        count: how often the manifest has it.
    """

    old: str
    new: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Template:
    """A template of the chart.

    Attributes:
        name: its file in `templates/`.
        source: the manifest, relative to `manifests/`.
        edits: the replacements, in order.
        condition: a condition under which the chart has the manifest's objects; empty means always.
    """

    name: str
    source: str
    edits: tuple[Edit, ...] = ()
    condition: str = ""


def render(template: Template, manifest: str) -> str:
    """Return the template's text.

    Raises:
        StalePassageError: the manifest was changed where the template replaces it.
    """
    if "{{" in manifest:
        raise StalePassageError(f"manifests/{template.source} has '{{{{', which Helm would evaluate")
    text = manifest
    for edit in template.edits:
        if (found := text.count(edit.old)) != edit.count:
            raise StalePassageError(
                f"manifests/{template.source} has {edit.old!r} {found} times, not {edit.count}: adapt lab/chart"
            )
        text = text.replace(edit.old, edit.new)
    text = _ACCOUNT.sub(r'\1{{ include "tranche.schedulerAccount" . }}', text)
    if template.condition:
        text = f"{{{{- if {template.condition} }}}}\n{text}{{{{- end }}}}\n"
    return NOTICE % template.source + text
