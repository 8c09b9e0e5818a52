"""Output formats: tables that look like kubectl's, and JSON and YAML of the same data."""

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import yaml
from tabulate import tabulate

NOTHING: Final = "<none>"
"""What a table shows for an empty list."""


class Table(msgspec.Struct, frozen=True):
    """A table: headers in upper case, and rows of texts."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self, *, headers: bool = True) -> str:
        """Return the lines, left-aligned, each with its newline."""
        lines = tabulate(
            self.rows,
            headers=self.headers if headers else (),
            tablefmt="plain",
            stralign="left",
            disable_numparse=True,
        ).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)


def render(data: msgspec.Struct, table: Table, *, output: str, headers: bool = True) -> str:
    """Return `data` as JSON or YAML if `output` names one of them, else the text of `table`."""
    text = structured(data, output=output)
    return table.text(headers=headers) if text is None else text


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
