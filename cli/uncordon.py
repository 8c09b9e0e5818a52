"""`kubectl gpu uncordon`: new pods may have cards again."""

import argparse

from cli import cordon
from cli.session import Session


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Take cards from the list of their node."""
    return cordon.change(session, arguments, cordoned=False)
