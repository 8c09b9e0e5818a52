"""The command line of `kubectl gpu simulate`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_explanation, add_filename

_DESCRIPTION = """\
Says what would become of the pods of a manifest if they were created now: admission first, then the scheduler's own
decision over what the API server shows. It works where no scheduler runs, and writes nothing. Every pod is asked about
by itself, a pod template as one pod of it. The exit code is 1 if any of them would not be placed.

Not known are what other admission plugins would add (LimitRanges, priority and runtime classes).
"""


def _add(parser: argparse.ArgumentParser) -> None:
    add_filename(parser)
    add_explanation(parser)


COMMAND = Command(
    summary="where the pods of a manifest would go, or why they would wait",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
