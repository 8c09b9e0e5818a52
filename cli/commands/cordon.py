"""The command line of `kubectl gpu cordon`."""

from cli.commands import TABLE, Command
from cli.flags import add_cards_to_cordon

_DESCRIPTION = """\
Keeps new pods from cards; pods on them stay, and are named. The card's node has it in its annotation
hami.io/device-cordon, whose other entries are kept. The UUID of a card in MIG mode stands for all of its instances.
"""


COMMAND = Command(
    summary="keep new pods from cards",
    description=_DESCRIPTION,
    add=add_cards_to_cordon,
    outputs=(TABLE, "json", "yaml", "name"),
)
