"""The fleet file: a YAML file that maps each node to its cards.

    gpu-1: {count: 8, memoryMiB: 81920, slots: 10, model: NVIDIA H100 80GB HBM3, unhealthy: [3]}
    gpu-3: {count: 8, memoryMiB: 81920, delivery: {mode: cdi, toolkit: {mode: legacy, version: 1.17.8}}}
    gpu-2:
      - {index: 0, uuid: GPU-8dcd427f, memoryMiB: 40960, cores: 100, model: NVIDIA A100-SXM4-40GB, numa: 1}

`agent.declared.declaration` defines the keys of cards; `connections`, `delivery_declaration`, `fabric_declaration` and
`isolation_declaration` those of their node.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from agent.declared import mig_declaration
from agent.declared.declaration import read_cards
from agent.declared.delivery_declaration import read_delivery
from agent.declared.fabric_declaration import read_fabric
from agent.declared.isolation_declaration import read_isolation
from agent.device_use import Measured
from agent.inventory import InventoryError, UnmeasuredError
from agent.report import NodeReport
from allocation.errors import InvalidFieldError
from allocation.mig import InstanceRequest
from cluster import yaml_documents
from cluster.yaml_documents import UnreadableDocumentError

_LONGEST_NAME: Final = 253
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class FleetFile:
    """The inventory source for a fleet file. Each reading reads the file, and parses it if it has changed."""

    def __init__(self, path: Path, *, node: str = "") -> None:
        """Serve `node`, or every node of the file at `path` if it is empty."""
        self._path = path
        self._node = node
        self._content = b""
        self._reports: Mapping[str, NodeReport] = {}
        self._created: dict[tuple[str, str], InstanceRequest] = {}

    def read(self) -> Mapping[str, NodeReport]:
        """Return the reports that the file declares now.

        Raises:
            InventoryError: the file cannot be read, is not a valid fleet, or lacks the node that is served.
        """
        try:
            content = self._path.read_bytes()
        except OSError as error:
            raise InventoryError(f"fleet file {self._path}: {error.strerror}; name one with --fleet-file") from error
        if content != self._content:
            self._reports = self._serve(parse(content, file=str(self._path)))
            self._content = content
        if not self._created:
            return self._reports
        return {node: self._with_created(report) for node, report in self._reports.items()}

    def create(self, node: str, request: InstanceRequest) -> None:
        """Simulate the requested instance until the process ends (see `InventorySource`)."""
        self._created[node, request.id] = request

    def destroy(self, node: str, request: InstanceRequest) -> None:
        """Stop simulating the requested instance (see `InventorySource`)."""
        self._created.pop((node, request.id), None)

    def measure(self) -> Measured:
        """Raise UnmeasuredError: nothing runs on cards that a file declares (see `InventorySource`)."""
        raise UnmeasuredError("a fleet file declares the cards, so nothing is measured")

    def _with_created(self, report: NodeReport) -> NodeReport:
        devices = []
        for device in report.devices:
            requests = [
                request
                for (node, _), request in self._created.items()
                if (node, request.card) == (report.node, device.card.uuid)
            ]
            devices += [device, *(mig_declaration.simulated_instance(device, request) for request in requests)]
        return msgspec.structs.replace(report, devices=tuple(devices))

    def _serve(self, fleet: Mapping[str, NodeReport]) -> Mapping[str, NodeReport]:
        if not self._node:
            return fleet
        if self._node not in fleet:
            raise InventoryError(
                f"fleet file {self._path} does not list node {self._node}; add it, or change --node-name"
            )
        return {self._node: fleet[self._node]}


def parse(content: bytes, *, file: str) -> dict[str, NodeReport]:
    """Return the report of each node of a fleet file; messages call it `file`.

    Raises:
        InventoryError: the content is not a valid fleet.
    """
    try:
        tree = yaml_documents.load(content)
    except UnreadableDocumentError as error:
        raise InventoryError(f"fleet file {file} is not valid YAML: {error}") from None
    try:
        return _inventories(tree, file=file)
    except InvalidFieldError as error:
        raise InventoryError(f"fleet file {error}") from None


def _inventories(tree: object, *, file: str) -> dict[str, NodeReport]:
    if not isinstance(tree, Mapping) or not tree:
        # An empty file is most likely being written: it must not remove the fleet.
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
                field=place,
                value=node,
                expected="a node's name must be a DNS subdomain",
                remedy="use the name of the Node object",
            )
        cards = read_cards(declared, node=node, place=place)
        fleet[node] = NodeReport(
            node,
            cards,
            delivery=read_delivery(declared, place=place),
            fabric=read_fabric(declared, place=place),
            isolation=read_isolation(declared, place=place),
        )
        for card in fleet[node].inventory.cards:
            if card.uuid in owners:
                raise InvalidFieldError(
                    field=f"{place}, card {card.index}, uuid",
                    value=card.uuid,
                    expected=f"node {owners[card.uuid]} has a card with this UUID already",
                    remedy="give each card a different UUID",
                )
            owners[card.uuid] = node
    return fleet
