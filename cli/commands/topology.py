"""The command line of `kubectl gpu topology`."""

import argparse

from cli.commands import TABLE, Command
from cli.flags import add_resource_names

_DESCRIPTION = """\
Shows how the cards of nodes are connected, and which pods have them. Without
a name each row is a node; ISLANDS 2x4 means two islands of four cards that
reach each other over NVLink. With names the cards of each node are drawn as a
matrix:

  450   GB/s over NVLink, in one direction; NV if it is not reported
  PIX   the same PCIe switch
  PXB   PCIe switches, without the CPU
  PHB   a PCIe host bridge
  NODE  the same NUMA node
  SYS   different NUMA nodes
  -     not known

Below the matrix are the network adapters, and GPUDirect Storage. The matrix of
a node with more than 16 cards is left out; -o json has all pairs. MIG
instances cannot reach other cards, so a card in MIG mode has no connections.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "nodes", nargs="*", metavar="NODE", help="draw the cards of these nodes (default: a row per node)"
    )
    add_resource_names(parser)


COMMAND = Command(
    module="cli.topology.topology",
    summary="show how the cards of nodes are connected, and who has them",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml", "name"),
)
