"""How answers are printed: tables that look like kubectl's, JSON and YAML of the same data."""

import sys
from collections.abc import Sequence
from typing import Final

import msgspec
import yaml
from tabulate import tabulate

NOTHING: Final = "<none>"
"""What a table shows where a list is empty."""


class Table(msgspec.Struct, frozen=True):
    """Headers in upper case, and a row of texts for each line."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text(self, *, headers: bool = True) -> str:
        """Answer the lines, left-aligned, each with its newline."""
        lines = tabulate(
            self.rows,
            headers=self.headers if headers else (),
            tablefmt="plain",
            stralign="left",
            disable_numparse=True,
        ).splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)


def render(data: msgspec.Struct, table: Table, *, output: str, headers: bool = True) -> str:
    """Answer `data` as `output` says, where it says nothing of the kind as `table`."""
    text = structured(data, output=output)
    return table.text(headers=headers) if text is None else text


def structured(data: msgspec.Struct, *, output: str) -> str | None:
    """Answer `data` in JSON or YAML, None where `output` names neither."""
    match output:
        case "json":
            return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
        case "yaml":
            return str(yaml.safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True))
        case _:
            return None


def note(text: str) -> None:
    """Tell the person something that is no part of the answer."""
    print(f"note: {text}", file=sys.stderr)
