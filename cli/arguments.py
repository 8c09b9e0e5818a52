"""The command line: kubectl's own flags and the subcommands.

Only the standard library is imported here, so that help and usage errors appear at once.
"""

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

from cli import commands
from cli.commands import TABLE, Command

USAGE_ERROR: Final = 2
_EPILOG: Final = """\
exit codes: 0 success, 1 failure, 2 wrong command line or configuration,
130 interrupted, 141 the output was closed
"""


class Parser(argparse.ArgumentParser):
    """A parser that reports a usage error in one line, like every other error of this program."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(USAGE_ERROR, f"error: {message}; see '{self.prog} --help'\n")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; exit after `--help` (0) and after a usage error (2)."""
    return parser().parse_args(argv)


def parser() -> Parser:
    """Return the parser of the whole command line."""
    main = Parser(
        prog="kubectl gpu",
        description="Shows and explains GPU shares, checks manifests, and maintains cards and certificates.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(main, default="")
    subparsers = main.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for name, command in commands.every():
        subparser = subparsers.add_parser(
            name,
            help=command.summary,
            description=command.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(subparser)
        _add_output_flags(subparser, command)
        if command.asks_cluster or command.reads_configuration:
            _add_cluster_flags(subparser, default=argparse.SUPPRESS, impersonates=command.asks_cluster)
        subparser.set_defaults(asks_cluster=command.asks_cluster, module=command.module)
    return main


def _add_output_flags(parser: argparse.ArgumentParser, command: Command) -> None:
    if command.outputs:
        default = command.outputs[0]
        parser.add_argument(
            *("-o", "--output"),
            choices=command.outputs,
            default=default,
            help=f"output format (default: {default})",
        )
    if TABLE in command.outputs:
        parser.add_argument("--no-headers", action="store_true", help="omit the header row of tables")


def _add_cluster_flags(parser: argparse.ArgumentParser, *, default: str, impersonates: bool = True) -> None:
    """Add kubectl's flags, before and after the command. A default after it would overwrite a value before it."""
    flags = parser.add_argument_group("cluster")
    flags.add_argument("--kubeconfig", default=default, metavar="FILE", help="use this kubeconfig file")
    flags.add_argument("--context", default=default, metavar="CONTEXT", help="use this context of the kubeconfig")
    flags.add_argument(
        "--cluster", default=default, metavar="CLUSTER", help="use this cluster instead of the context's"
    )
    flags.add_argument(
        "--user", dest="kube_user", default=default, metavar="USER", help="use this user instead of the context's"
    )
    flags.add_argument("--token", default=default, metavar="TOKEN", help="use this bearer token for authentication")
    if impersonates:
        flags.add_argument("--as", dest="impersonate", default=default, metavar="USER", help="impersonate this user")
    flags.add_argument(
        "-n", "--namespace", default=default, metavar="NAMESPACE", help="use this namespace (default: the context's)"
    )
