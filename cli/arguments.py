"""The command line: kubectl's own flags, and one subcommand for each question.

Nothing here reads more than the standard library, so that help and mistakes are answered at once.
"""

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

USAGE_ERROR: Final = 2
_FORMATS: Final = ("json", "yaml", "wide")
_EPILOG: Final = """\
exit codes: 0 done, 1 failed, 2 the command line is wrong
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error of this program is said."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"error: {message}; see '{self.prog} --help'\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process for `--help` (0) and for a mistake (2)."""
    parser = _Parser(
        prog="kubectl gpu",
        description="Shows GPU shares: what cards hold, and what a pod was given.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(parser, default="")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_env(commands)
    _add_top(commands)
    return parser.parse_args(argv)


def _add_env(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "env",
        help="the GPU variables of a pod's containers",
        description="Shows the GPU variables of a pod's containers as the kubelet resolves them: each refers to an "
        "annotation that is written together with the pod's node, and is empty before that.",
    )
    parser.add_argument("pod", metavar="POD", help="the pod's name")
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="only this container")
    _add_output_flags(parser)
    _add_cluster_flags(parser, default=argparse.SUPPRESS)


def _add_top(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "top",
        help="the cards of each node, and who has shares of them",
        description="Shows the cards of each node with what is reserved of them, counted as the scheduler counts: "
        "reservations, not measurements.",
    )
    parser.add_argument("what", nargs="?", choices=("nodes",), default="nodes", help="what to list (default: nodes)")
    parser.add_argument("node", nargs="?", default="", metavar="NODE", help="only this node")
    _add_output_flags(parser)
    _add_cluster_flags(parser, default=argparse.SUPPRESS)


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=_FORMATS, default="table", help="format (default: a table)")
    parser.add_argument("--no-headers", action="store_true", help="leave the table's first line out")


def _add_cluster_flags(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Take kubectl's flags before and after the command; the latter have no default, which would undo the former."""
    flags = parser.add_argument_group("cluster")
    flags.add_argument("--kubeconfig", default=default, metavar="FILE", help="the kubeconfig file")
    flags.add_argument("--context", default=default, metavar="NAME", help="the kubeconfig's context")
    flags.add_argument(
        "-n", "--namespace", default=default, metavar="NAME", help="the namespace (default: the context's)"
    )
