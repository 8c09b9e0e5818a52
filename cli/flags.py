"""Flags of more than one command. Every command line loads this module, so it imports only the standard library."""

import argparse


def add_cards_to_cordon(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cordon` and `uncordon`."""
    parser.add_argument(
        "cards",
        nargs="+",
        metavar="UUID",
        help="the UUID of a card, see 'kubectl gpu top --cards -o wide', or the name of a node for all of its cards",
    )
    parser.add_argument(
        "--dry-run",
        choices=("none", "client", "server"),
        default="none",
        help="client: write nothing; server: let the API server check the change without storing it (default: none)",
    )


def add_filename(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add `-f`, which names manifests."""
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        required=required,
        metavar="FILE",
        help="a file with documents in YAML or JSON, or - for standard input; may be repeated",
    )


def add_resource_names(parser: argparse.ArgumentParser) -> None:
    """Add the file that names resources, for commands that count what pods request."""
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="Tranche's configuration file, if it renames resources (default: the default configuration)",
    )


def add_scheduler_url(parser: argparse.ArgumentParser) -> None:
    """Add the URL of the scheduler's API for namespaces."""
    parser.add_argument(
        "--scheduler-url",
        default="",
        metavar="URL",
        help="ask the scheduler at this https:// URL, with rights in one namespace",
    )


def add_explanation(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `explain` and `simulate`."""
    parser.add_argument(
        "--node", default="", metavar="NODE", help="show the cards of this node with their verdicts on the pod"
    )
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="Tranche's configuration file (default: the installed one)",
    )
    add_scheduler_url(parser)


def add_with_node(parser: argparse.ArgumentParser) -> None:
    """Add the flag that adds nodes, for commands that evaluate pods."""
    parser.add_argument(
        "--with-node",
        default="",
        metavar="NODE",
        help="decide as if there were more nodes like this one, for example gpu-1=4",
    )
