"""The command line of `kubectl gpu report`."""

import argparse
import os
import re
from typing import Final

from cli.commands import TABLE, Command

VARIABLE: Final = "TRANCHE_PROMETHEUS"
_LABEL: Final = re.compile(r"[-A-Za-z0-9_.:/]{1,253}")
_DESCRIPTION = f"""\
Shows the GPU-hours that the pods of each namespace have held, by the queue
that they were charged to: of each share the larger of its parts of the card's
memory and compute, whether the pod used it or not.

The scheduler counts, and Prometheus keeps what it has read. Name Prometheus
with --prometheus or ${VARIABLE}: its URL, or NAMESPACE/SERVICE:PORT, which the
API server then forwards the query to (right: get services/proxy there).

What pods held while Prometheus read no leading scheduler is not counted; a
note says for how much of the time that was.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--since", default="24h", metavar="DURATION", help="how far to go back: 90m, 24h (default), 30d"
    )
    parser.add_argument(
        "--prometheus",
        default=os.environ.get(VARIABLE, ""),
        metavar="PLACE",
        help=f"URL, or NAMESPACE/SERVICE[:PORT] (default: ${VARIABLE})",
    )
    parser.add_argument(
        "--cluster-label",
        default="",
        type=_label,
        metavar="NAME",
        help="the value of label cluster, where one Prometheus has several clusters",
    )
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include every namespace (the default)")


def _label(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise argparse.ArgumentTypeError("letters, digits and -_.:/ only")
    return text


COMMAND = Command(
    module="cli.report.report",
    summary="show the GPU-hours of each namespace and queue",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "json", "yaml"),
)
