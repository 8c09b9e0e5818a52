"""The command line of `kubectl gpu bindings`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Shows the GPUBindings: which card belongs to which application of which user,
and the live pods of the application that have the card. MEMORY is what the
binding sets for each pod, MODE how pods share the card (annotation
sharemode.gpu.bytetrade.io/UUID of its node). <none> as OWNER or NAMESPACE
means every one.

With APP, --owner or -n only the bindings are shown that count for such pods,
including those without owner or namespace. Notes below the table name what is
wrong: cards that no node reports, bindings that give no card to any pod, that
contradict one another, or that trust every namespace. docs/gpubindings.md
describes how bindings are written.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", nargs="?", metavar="APP", help="show the bindings of this application (default: all)")
    parser.add_argument("--owner", default="", metavar="OWNER", help="show the bindings that count for this user")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="include every namespace (the default)")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: the installed one)"
    )


COMMAND = Command(
    module="cli.bindings.bindings",
    summary="show which cards belong to which applications, and who has them",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
