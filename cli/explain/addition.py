"""What `--with-node` names: nodes that there could be."""

from typing import Final

import msgspec

from cli.errors import CommandError

_MOST_ADDED: Final = 1_000
ADDS_TO_A_COPY: Final = (
    "--with-node adds nodes to a copy of the cluster's state, which requires ClusterRole tranche-viewer; omit"
    " --with-node"
)


class Addition(msgspec.Struct, frozen=True):
    """Nodes that there could be: the name of the node or group that they are like, and how many."""

    template: str
    count: int


def read(text: str) -> Addition:
    """Read what `--with-node` names.

    Raises:
        CommandError: it is not a name with a count.
    """
    name, separator, count = text.rpartition("=")
    if not separator:
        name, count = text, "1"
    if not name or not count.isdecimal() or not 1 <= int(count[:9]) <= _MOST_ADDED:
        raise CommandError(
            f"--with-node is {text[:100]!r}; it may be NODE=COUNT with a count from 1 to {_MOST_ADDED}, such as gpu-1=4"
        )
    return Addition(name, int(count))
