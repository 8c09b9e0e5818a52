"""The command line of `kubectl gpu uncordon`."""

from cli.commands import TABLE, Command
from cli.flags import add_cards_to_cordon

_DESCRIPTION = """\
Lets new pods use cards again: removes the cards from the annotation
hami.io/device-cordon of their node and preserves its other entries.
"""


COMMAND = Command(
    module="cli.cordon",
    summary="let new pods use cards again",
    description=_DESCRIPTION,
    add=add_cards_to_cordon,
    outputs=(TABLE, "json", "yaml", "name"),
)
