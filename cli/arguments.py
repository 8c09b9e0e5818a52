"""The command line: kubectl's own flags, and one subcommand for each question.

Nothing here reads more than the standard library, so that help and mistakes are answered at once.
"""

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

USAGE_ERROR: Final = 2
_FORMATS: Final = ("json", "yaml", "wide")
_INJECT: Final = """\
Prints manifests with every pod, and every pod template, as the admission webhook would leave it. No cluster is asked:
every namespace counts as opted in, a pod that opts out by its own label is left alone.

Templates are those of Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job, CronJob and
PodTemplate; lists are looked into. What has nothing to change is printed as it was written, comments included, in
its place; in a document that changes, the order of keys and the way that scalars are written stay, comments do not.

If one pod is refused, nothing at all is printed, so that a pipe into 'kubectl apply -f -' never applies half of it;
each refusal is told on standard error in the webhook's words, and the exit code is 1. Warnings go to standard error
as well and change nothing else.
"""
_PREFLIGHT: Final = """\
Reads the cluster, writes nothing, and says what a switch to Tranche would change: which nodes have a device plugin in
the way, how running GPU pods would be counted, which new ones would be changed, refused or held, what else decides
about them. What is found is sorted: BLOCKS is to be done before the switch, CHANGES will be different after it, NOTES
are good to know. With -n only pods, templates and quotas of that namespace are looked at. docs/migration.md goes on
from there.

exit codes: 0 nothing in the way, 1 something to do first, or the cluster could not be asked, 2 wrong command line
"""
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
        description="Shows GPU shares: what cards hold, and what a pod was given. Keeps admission at work.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_cluster_flags(parser, default="")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_env(commands)
    _add_top(commands)
    _add_inject(commands)
    _add_rotate_certs(commands)
    _add_preflight(commands)
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


def _add_inject(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "inject",
        help="manifests as the admission webhook would leave them",
        description=_INJECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON with any number of documents, - for standard input; may be repeated",
    )
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="format (default: yaml)")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="the webhook's configuration file (default: its defaults)"
    )
    parser.add_argument(
        "--as",
        dest="user",
        default="",
        metavar="USER",
        help="who will create it, which matters to pods that bring an allocation",
    )


def _add_rotate_certs(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "rotate-certs",
        help="replace the webhook's certificates, or their authority, without a failed admission",
        description="Replaces every certificate of the admission webhook, with --ca the authority that signs them too, "
        "without a failed admission, and says each step. Whatever becomes of this command, the webhook completes what "
        "was begun.",
    )
    parser.add_argument("--ca", action="store_true", help="replace the certificate authority too")
    parser.add_argument(
        "--dry-run", action="store_true", help="only say what would be done, and whether it would end well"
    )
    parser.add_argument(
        "--probe",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="a replica that shall be seen to show a new certificate; may be repeated",
    )
    parser.add_argument(
        "--drop-old",
        action="store_true",
        help="stop believing old authorities once every --probe shows a new certificate; name every replica",
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long API servers have to see a new caBundle (default: 10)",
    )
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="SECONDS", help="how long all of it may take (default: 120)"
    )
    _add_cluster_flags(parser, default=argparse.SUPPRESS)


def _add_preflight(commands: "argparse._SubParsersAction[_Parser]") -> None:
    parser = commands.add_parser(
        "preflight",
        help="what a switch to Tranche would change, and what to do first",
        description=_PREFLIGHT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="pods of every namespace (the default)")
    parser.add_argument("--mode", choices=("loop", "extender"), default="loop", help="how it shall run (default: loop)")
    parser.add_argument(
        "--config", default="", metavar="FILE", help="Tranche's configuration file (default: its defaults)"
    )
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="format")
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
