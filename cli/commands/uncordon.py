"""The command line of `kubectl gpu uncordon`."""

from cli.commands import TABLE, Command
from cli.flags import add_cards_to_cordon

_DESCRIPTION = """\
Takes cards from the annotation hami.io/device-cordon of their node, whose other entries are kept: new pods may have
them again.
"""


COMMAND = Command(
    summary="let new pods have cards again",
    description=_DESCRIPTION,
    add=add_cards_to_cordon,
    outputs=(TABLE, "json", "yaml", "name"),
)
