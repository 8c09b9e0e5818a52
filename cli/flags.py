"""Flags that more than one command takes; read for every command line, so nothing but the standard library."""

import argparse


def add_cards_to_cordon(parser: argparse.ArgumentParser) -> None:
    """Take the cards of `cordon` and `uncordon`, and whether to write."""
    parser.add_argument(
        "uuids", nargs="+", metavar="UUID", help="a card's UUID, as 'kubectl gpu top --cards -o wide' lists it"
    )
    parser.add_argument(
        "--dry-run",
        choices=("none", "client", "server"),
        default="none",
        help="client: write nothing; server: let the API server check it, and write nothing (default: none)",
    )


def add_filename(parser: argparse.ArgumentParser) -> None:
    """Take manifests."""
    parser.add_argument(
        *("-f", "--filename"),
        action="append",
        required=True,
        metavar="FILE",
        help="YAML or JSON with any number of documents, - for standard input; may be repeated",
    )


def add_explanation(parser: argparse.ArgumentParser) -> None:
    """Take what `explain` and `simulate` tell, and by which configuration."""
    parser.add_argument("--node", default="", metavar="NODE", help="the cards of this node, and what each says")
    parser.add_argument(
        "--config",
        default="",
        metavar="FILE",
        help="Tranche's configuration file, where it is not all defaults",
    )
