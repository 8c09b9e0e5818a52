"""Random clusters whose pods have GpuClaims of every kind."""

from typing import Any, Final

from cluster.gpu_claim import GpuClaim
from scheduler.objects import Pod
from tests.scheduler.support.claims import claim as gpu_claim
from tests.scheduler.support.claims import claiming
from tests.scheduler.support.worlds import NAMESPACES, World

_CLAIMS: Final = {
    namespace: tuple(
        gpu_claim(f"claim-{number}", namespace=namespace, **devices)
        for number, devices in enumerate(
            (
                {},
                {"count": 2},
                {"exclusivity": "Shared"},
                {"exclusivity": "Shared", "memoryMiB": 3000, "cores": 30},
                {"exclusivity": "Shared", "memoryMiB": 60000, "count": 2},
                {"exclusivity": "MIG"},
                {"exclusivity": "MIG", "profile": "1g.5gb"},
            )
        )
    )
    for namespace in NAMESPACES
}


class ClaimingWorld(World):
    """A random world in which most pods name a claim; the last one of namespace `team` does not exist."""

    def add_node(self, name: str) -> None:
        """Add a node, and the claims with the first one."""
        super().add_node(name)
        for claims in _CLAIMS.values():
            for claim in claims:
                if claim is not _CLAIMS["team"][-1]:
                    self.state.set_claim(claim)

    def pod(self, **more: Any) -> Pod:
        """Return a new pod, which mostly names a claim of its namespace."""
        plain = super().pod(**more)
        if self.chance.random() < 0.3:
            return plain
        metadata = plain.metadata
        claim: GpuClaim = self.chance.choice(_CLAIMS[metadata.namespace])
        return claiming(
            metadata.name,
            claim,
            containers=[f"c{number}" for number in range(self.chance.choice((1, 1, 2, 3)))],
            annotations=dict(metadata.annotations),
            labels={"app": self.chance.choice("xyz")},
            **more,
        )
