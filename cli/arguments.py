"""The command line: kubectl's own flags, and one subcommand for each question.

Nothing here reads more than the standard library, so that help and mistakes are answered at once.
"""

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

from cli import commands
from cli.commands import TABLE, Command

USAGE_ERROR: Final = 2
_EPILOG: Final = """\
exit codes: 0 done, 1 failed, 2 the command line is wrong, 130 interrupted, 141 nobody reads the output any more
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error of this program is said."""

    def error(self, message: str) -> NoReturn:
        """End the process."""
        self.exit(USAGE_ERROR, f"error: {message}; see '{self.prog} --help'\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; ends the process for `--help` (0) and for a mistake (2)."""
    return parser().parse_args(argv)


def parser() -> Parser:
    """Answer the parser of the whole command line."""
    whole = Parser(
        prog="kubectl gpu",
        description="Shows GPU shares: what cards hold, and what a pod was given. Keeps cards and admission at work.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(whole, default="")
    known = whole.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, command in commands.every():
        one = known.add_parser(
            name,
            help=command.summary,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(one)
        _add_output_flags(one, command)
        if command.asks_cluster:
            _add_cluster_flags(one, default=argparse.SUPPRESS)
        one.set_defaults(asks_cluster=command.asks_cluster)
    return whole


def _add_output_flags(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.outputs:
        default = command.outputs[0]
        parser.add_argument(
            *("-o", "--output"), choices=command.outputs, default=default, help=f"format (default: {default})"
        )
    if TABLE in command.outputs:
        parser.add_argument("--no-headers", action="store_true", help="leave the table's first line out")


def _add_cluster_flags(parser: argparse.ArgumentParser, *, default: str) -> None:
    """Take kubectl's flags before and after the command; the latter have no default, which would undo the former."""
    flags = parser.add_argument_group("cluster")
    flags.add_argument("--kubeconfig", default=default, metavar="FILE", help="the kubeconfig file")
    flags.add_argument("--context", default=default, metavar="CONTEXT", help="the kubeconfig's context")
    flags.add_argument("--cluster", default=default, metavar="CLUSTER", help="a cluster, instead of the context's")
    flags.add_argument("--user", dest="kube_user", default=default, metavar="USER", help="a user, instead of its own")
    flags.add_argument("--as", dest="impersonate", default=default, metavar="USER", help="the user to act as")
    flags.add_argument(
        "-n", "--namespace", default=default, metavar="NAMESPACE", help="the namespace (default: the context's)"
    )
