"""`python -m benchmarks.report`: write the newest results into docs/performance/results.md, with plots next to it."""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from benchmarks import plots, results
from benchmarks.results import Result

_PAGE = Path("docs/performance/results.md")
_MEASURED: Final = ("allocation", "scheduler", "webhook", "agent", "cluster", "manifests/base")
"""What the figures speak of."""
_BEGIN, _END = "<!-- results -->\n", "<!-- end of results -->\n"


def main() -> int:
    """Render the newest file of each benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=main.__doc__)
    parser.add_argument("--results", type=Path, default=results.FOLDER, metavar="DIR", help="folder of the raw numbers")
    parser.add_argument("--page", type=Path, default=_PAGE, metavar="FILE", help="page that contains the table")
    arguments = parser.parse_args()
    newest = results.newest(arguments.results)
    if not newest:
        parser.error(f"{arguments.results} holds no results: run `make bench` first")
    page = arguments.page.read_text()
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        parser.error(f"{arguments.page} has no place for the table: it needs the lines {_BEGIN!r} and {_END!r}")
    arguments.page.write_text(f"{before}{begin}{_tables(newest)}{end}{after}")
    for path in plots.draw((result for _, result in newest), arguments.page.parent):
        print(path)
    return 0


def _tables(newest: Sequence[tuple[str, Result]]) -> str:
    """Return a table for each day and machine, with how much the code has changed since."""
    text = ""
    for (day, machine), group in groupby(newest, key=lambda each: (each[0], each[1].machine)):
        runs = [result for _, result in group]
        table = results.table(row for each in runs for row in each.rows)
        text += f"Measured on {day}{_changes(day)},\non {machine}{_pace(runs)}.\n\n{table}\n\n"
    return text.removesuffix("\n")


def _pace(runs: Iterable[Result]) -> str:
    """Return how fast the machine was, in words; nothing if that was not measured."""
    known = sorted(each.pace for each in runs if each.pace)
    bounds = dict.fromkeys(f"{each:.1f}" for each in (*known[:1], *known[-1:]))
    return f",\nat {' to '.join(bounds)} times the usual time for a piece of work" if known else ""


def _changes(day: str) -> str:
    """Return how often the code has changed since a day, in words; nothing if it has not, or there is no history."""
    git = shutil.which("git")
    if git is None:
        return ""
    command = [git, "rev-list", "--count", f"--since={day}T23:59:59Z", "HEAD", "--", *_MEASURED]
    counted = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return f", {counted} changes of the code ago" if counted not in ("", "0") else ""


if __name__ == "__main__":
    sys.exit(main())
