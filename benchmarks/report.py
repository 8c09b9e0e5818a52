"""`python -m benchmarks.report`: write the newest results into docs/performance/results.md, with plots next to it."""

import argparse
import sys
from pathlib import Path

from benchmarks import plots, results

_PAGE = Path("docs/performance/results.md")
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
    machine = f"Measured on {newest[0].machine}.\n"
    table = results.table(row for result in newest for row in result.rows)
    arguments.page.write_text(f"{before}{begin}{machine}\n{table}\n{end}{after}")
    for path in plots.draw(newest, arguments.page.parent):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
