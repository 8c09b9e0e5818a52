"""Gangs: claims that name one, nodes in network blocks, and random worlds with both."""

from typing import Any, Final

import msgspec

from cluster.gpu_claim import GpuClaim
from scheduler.objects import Node, Pod
from tests.scheduler.support.claims import claim, container
from tests.scheduler.support.preferring import PreferringWorld, labelled
from tests.scheduler.support.worlds import NAMESPACES

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
CLIQUE: Final = "nvidia.com/gpu.clique"


def of_gang(given: GpuClaim, gang: str) -> GpuClaim:
    """Return a claim for a pod of a gang."""
    return msgspec.structs.replace(given, spec=msgspec.structs.replace(given.spec, gang_ref=gang))


def in_blocks(name: str, *, region: str = "", zone: str = "", clique: str = "") -> Node:
    """Return a node with the labels of these blocks; empty ones are left out."""
    labels = {REGION: region, ZONE: zone, CLIQUE: clique}
    return labelled(name, **{label: value for label, value in labels.items() if value})


class GangWorld(PreferringWorld):
    """A random world in which most nodes are in network blocks, and most pods belong to a gang.

    Attributes:
        claims: the claims of each namespace.
    """

    def __init__(self, seed: int) -> None:
        self.claims = {
            namespace: [
                of_gang(claim(f"claim-{number}", namespace=namespace, exclusivity="Shared", memoryMiB=3000), gang)
                for number, gang in enumerate(("g", "g", "h", ""))
            ]
            for namespace in NAMESPACES
        }
        super().__init__(seed)

    def add_node(self, name: str) -> None:
        """Add a node, or change it; and some claims, which others replace later."""
        super().add_node(name)
        chance = self.chance
        added = self.state.node_cache.nodes[name]
        blocks = {label: chance.choice("ab") for label in (REGION, ZONE, CLIQUE) if chance.random() < 0.8}
        metadata = msgspec.structs.replace(added.metadata, labels={**added.metadata.labels, **blocks})
        self.state.set_node(msgspec.structs.replace(added, metadata=metadata), added)
        for claims in self.claims.values():
            for each in claims:
                if chance.random() < 0.8:
                    self.state.set_claim(each)
                elif chance.random() < 0.2:
                    self.state.drop_claim(each)

    def pod(self, **more: Any) -> Pod:
        """Return a new pod, which mostly names a claim."""
        if self.chance.random() < 0.3:
            return super().pod(**more)
        given = self.chance.choice(self.claims["default"])
        plain = super().pod(**{"containers": [container(given)], "initContainers": [], **more})
        annotations = {**plain.metadata.annotations, "gpu.scheduling/claim": given.metadata.name}
        return msgspec.structs.replace(plain, metadata=msgspec.structs.replace(plain.metadata, annotations=annotations))
