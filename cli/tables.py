"""Output formats: tables that look like kubectl's, and JSON and YAML of the same data."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml
from tabulate import tabulate

NOTHING: Final = "<none>"
"""What a table shows for an empty list."""


_WIDEST: Final = 120
_SHORTEST: Final = 12
"""Columns are not cut to less, nor to less than their headers."""
_GAP: Final = 2
"""The spaces between columns, and those that `tabulate` adds to headers."""


class Table(msgspec.Struct, frozen=True):
    """A table: headers in upper case, and rows of texts; the columns `whole`, by header, are never cut."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: Sequence[str] = ()

    def text(self, *, headers: bool = True, wide: bool = False) -> str:
        """Return the lines, left-aligned, each with its newline.

        Unless `wide`, cells of the widest columns are cut so that lines have at most 120 columns.
        """
        lines = tabulate(
            self.rows if wide else self._cut(headers=headers),
            headers=self.headers if headers else (),
            tablefmt="plain",
            stralign="left",
            disable_numparse=True,
        ).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def _cut(self, *, headers: bool) -> Sequence[Sequence[str]]:
        """Return the rows with the cells of the widest columns cut as far as that makes lines short enough."""
        heads = [len(header) + _GAP if headers else 0 for header in self.headers]
        widths = [max((len(row[column]) for row in self.rows), default=0) for column in range(len(heads))]
        while (excess := _line_width(widths, heads) - _WIDEST) > 0:
            spare = [
                0 if header in self.whole else width - max(head, _SHORTEST)
                for header, width, head in zip(self.headers, widths, heads, strict=True)
            ]
            if max(spare) <= 0:
                break
            column = spare.index(max(spare))
            widths[column] -= min(excess, (spare[column] + 1) // 2)
        return [[_shortened(cell, width) for cell, width in zip(row, widths, strict=True)] for row in self.rows]


def _line_width(widths: Sequence[int], heads: Sequence[int]) -> int:
    """Return the most columns of a line: the last cell has no padding after it."""
    padded = [max(pair) for pair in zip(widths[:-1], heads[:-1], strict=True)]
    return sum(padded) + _GAP * len(padded) + widths[-1]


def _shortened(cell: str, width: int) -> str:
    return cell if len(cell) <= width else f"{cell[: width - 1]}…"


def render(data: msgspec.Struct, table: Table, *, output: str, headers: bool = True) -> str:
    """Return `data` as JSON or YAML if `output` names one of them, else the text of `table`, which may be wide."""
    text = structured(data, output=output)
    return table.text(headers=headers, wide=output == "wide") if text is None else text


def structured(data: msgspec.Struct | dict[str, Any], *, output: str) -> str | None:
    """Return `data` as JSON or YAML, or None if `output` names neither."""
    match output:
        case "json":
            return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
        case "yaml":
            return str(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True))
        case _:
            return None


def listed(names: Sequence[str], *, shown: int | None = None) -> str:
    """Return names separated by commas, at most `shown` of them and how many more there are."""
    more = [f"+{len(names) - shown} more"] if shown is not None and len(names) > shown else []
    return ",".join([*names[:shown], *more]) or NOTHING


def age(seconds: float) -> str:
    """Return how long ago something was, in the largest unit of which there are two or more, as `kubectl get` does."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(max(seconds, 0))}s"


def note(text: str) -> None:
    """Print a remark to standard error."""
    print(f"note: {text}", file=sys.stderr)
