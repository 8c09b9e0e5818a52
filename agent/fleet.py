"""Inventory by configuration: a YAML file that maps each node to its cards.

    gpu-1: {count: 8, memoryMiB: 81920, slots: 10, model: NVIDIA H100 80GB HBM3, unhealthy: [3]}
    gpu-2:
      - {index: 0, uuid: GPU-8dcd427f, memoryMiB: 40960, cores: 100, model: NVIDIA A100-SXM4-40GB, numa: 1}

The keys are those of `agent.declaration`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from agent import mig_declaration
from agent.declaration import read_cards
from agent.inventory import InventoryError
from agent.report import NodeReport
from allocation.errors import InvalidFieldError
from allocation.mig import Wish

_LONGEST_NAME: Final = 253
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class FleetFile:
    """The inventory source that a person writes. The file is read anew each time, and parsed when it has changed."""

    def __init__(self, path: Path, *, node: str = "") -> None:
        """Serve `node`, or every node of the file at `path` where none is named."""
        self._path = path
        self._node = node
        self._content = b""
        self._known: Mapping[str, NodeReport] = {}
        self._made: dict[tuple[str, str], Wish] = {}

    def read(self) -> Mapping[str, NodeReport]:
        """Answer what the file says now.

        Raises:
            InventoryError: the file cannot be read, or is no fleet, or does not know the node that is served.
        """
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise InventoryError(f"fleet file {self._path}: {error.strerror}; name one with --fleet-file") from error
        if content != self._content:
            self._known = self._serve(parse(content, file=str(self._path)))
            self._content = content
        if not self._made:
            return self._known
        return {node: self._with_made(report) for node, report in self._known.items()}

    def create(self, node: str, wish: Wish) -> None:
        """Pretend to have the instance of a wish (see `InventorySource`); it is forgotten when the process ends."""
        self._made[node, wish.id] = wish

    def destroy(self, node: str, wish: Wish) -> None:
        """Have no instance of a wish (see `InventorySource`)."""
        self._made.pop((node, wish.id), None)

    def _with_made(self, report: NodeReport) -> NodeReport:
        devices = []
        for device in report.devices:
            wishes = [
                wish for (node, _), wish in self._made.items() if (node, wish.card) == (report.node, device.card.uuid)
            ]
            devices += [device, *(mig_declaration.made(device, wish) for wish in wishes)]
        return msgspec.structs.replace(report, devices=tuple(devices))

    def _serve(self, fleet: Mapping[str, NodeReport]) -> Mapping[str, NodeReport]:
        if not self._node:
            return fleet
        if self._node not in fleet:
            raise InventoryError(
                f"fleet file {self._path} has no node {self._node}; add it: it has {len(fleet)} others"
            )
        return {self._node: fleet[self._node]}


def parse(content: bytes, *, file: str) -> dict[str, NodeReport]:
    """Answer the report of each node of a fleet file; `file` names it in messages.

    Raises:
        InventoryError: with the file, node, key, value and remedy.
    """
    try:
        tree = yaml.load(content, _StrictLoader)  # noqa: S506 -- it is a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise InventoryError(f"fleet file {file} is not YAML: {error}") from None
    try:
        return _inventories(tree, file=file)
    except InvalidFieldError as error:
        raise InventoryError(f"fleet file {error}") from None


def _inventories(tree: object, *, file: str) -> dict[str, NodeReport]:
    if not isinstance(tree, Mapping) or not tree:
        # An empty file is most likely one that is being written: it must not take a fleet away.
        raise InvalidFieldError(
            field=file,
            value=tree,
            expected="it must map each node's name to its cards",
            remedy="write for example gpu-1: {count: 8, memoryMiB: 81920}",
        )
    fleet: dict[str, NodeReport] = {}
    owners: dict[str, str] = {}
    for node, declared in tree.items():
        place = f"{file}: {node}"
        if not isinstance(node, str) or len(node) > _LONGEST_NAME or not _NODE_NAME.fullmatch(node):
            raise InvalidFieldError(
                field=place, value=node, expected="a node's name is a DNS subdomain", remedy="write the Node's name"
            )
        fleet[node] = NodeReport(node, read_cards(declared, node=node, place=place))
        for card in fleet[node].inventory.cards:
            if card.uuid in owners:
                raise InvalidFieldError(
                    field=f"{place}, card {card.index}, uuid",
                    value=card.uuid,
                    expected=f"node {owners[card.uuid]} has a card with this UUID already",
                    remedy="give each card a UUID of its own",
                )
            owners[card.uuid] = node
    return fleet


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice, of which YAML libraries silently keep the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        mapping = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in mapping.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                problem = f"key {key.value!r} stands twice; remove one"
                raise yaml.composer.ComposerError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return mapping
