"""Read a page with shell commands and the outputs that it shows for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_COMMAND = re.compile(r"(?:helm|kubectl|k) ")
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?$")


@dataclass(frozen=True, slots=True)
class Step:
    """A command with its here-document, if it has one, and the lines that the page shows as its output."""

    command: str
    output: tuple[str, ...]


def block(page: Path, heading: str) -> str:
    """Return the content of the first fenced block below a heading."""
    section = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(r"^```\w+\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def steps(text: str) -> list[Step]:
    """Return the commands of a block in order; comments and empty lines are left out."""
    found: list[Step] = []
    lines = iter(text.splitlines())
    for line in lines:
        if _COMMAND.match(line):
            command = [line]
            if document := _HERE_DOCUMENT.search(line):
                while command[-1] != document[1]:
                    command.append(next(lines))
            found.append(Step("\n".join(command), ()))
        elif line and not line.startswith("#"):
            found[-1] = Step(found[-1].command, (*found[-1].output, line))
    return found


def has_table(printed: str, shown: tuple[str, ...], *, names: bool = True) -> bool:
    """Whether a printed table has the columns that the page shows, in their order, and with `names` the same names."""
    header, *rows = (line.split() for line in printed.splitlines())
    columns = iter(header)
    has_columns = all(column in columns for column in shown[0].split())
    return has_columns and (not names or [row[0] for row in rows] == [line.split()[0] for line in shown[1:]])
