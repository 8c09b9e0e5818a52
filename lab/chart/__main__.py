"""`python -m lab.chart`: write the generated files of charts/tranche and charts/gpu-scheduler."""

from __future__ import annotations

import sys
from pathlib import Path

from lab.chart import schema, template, templates

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
CHART = ROOT / "charts" / "tranche"
GPU_SCHEDULER = ROOT / "charts" / "gpu-scheduler"
"""The chart for users of ziwon's gpu-scheduler: the same templates, by a link, and further values."""
_ZIWONS_VALUES = (
    ("", "serviceAccountName", schema.NAME),
    ("webhook", "caBundle", schema.STRING),
    ("webhook", "excludeOwnNamespace", schema.FLAG),
)


def generated() -> dict[Path, str]:
    """Return the text of each generated file.

    Raises:
        StalePassageError: a manifest was changed where a template replaces it.
    """
    texts = {CHART / "templates" / each.name: template.render(each, _manifest(each.source)) for each in templates.ALL}
    copies = {CHART / "files" / name: _manifest(source) for name, source in templates.FILES.items()}
    schemas = {CHART: schema.text(), GPU_SCHEDULER: schema.text(*_ZIWONS_VALUES)}
    return {**texts, **copies, **{chart / "values.schema.json": text for chart, text in schemas.items()}}


def _manifest(source: str) -> str:
    return (MANIFESTS / source).read_text(encoding="utf-8")


def main() -> int:
    """Write the files; return 1 after a message if a manifest and its template disagree."""
    try:
        files = generated()
    except template.StalePassageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
