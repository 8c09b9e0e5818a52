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


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table that kubectl printed, by column; cells may be empty."""
    header, *rows = text.splitlines()
    starts = [(found.group(), found.start()) for found in re.finditer(r"\S+", header)]
    ends = [start for _, start in starts[1:]] + [None]
    return [{name: row[start:end].strip() for (name, start), end in zip(starts, ends, strict=True)} for row in rows]


def has_columns(printed: str, shown: tuple[str, ...]) -> bool:
    """Whether a printed table has the columns that the page shows, in their order."""
    columns = iter(printed.splitlines()[0].split())
    return all(column in columns for column in shown[0].split())
