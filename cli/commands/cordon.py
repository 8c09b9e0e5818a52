"""The command line of `kubectl gpu cordon`."""

from cli.commands import TABLE, Command
from cli.flags import add_cards_to_cordon

_DESCRIPTION = """\
Keeps new GPU pods away from cards, or from all cards of a node. Pods that
already use a card keep their shares, and the output names them. The list of
cordoned cards is the annotation hami.io/device-cordon of the card's node; its
other entries are preserved. The UUID of a card in MIG mode covers all of its
instances.
"""


COMMAND = Command(
    module="cli.cordon",
    summary="keep new pods away from cards",
    description=_DESCRIPTION,
    add=add_cards_to_cordon,
    outputs=(TABLE, "json", "yaml", "name"),
)
