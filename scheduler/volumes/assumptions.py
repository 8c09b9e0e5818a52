"""The volumes that are chosen for pods whose claims are being bound, until the API server shows the result."""

from collections.abc import Iterator

import msgspec

from scheduler.volumes.bindings import ClaimKey, VolumeBindings


class _Assumed(msgspec.Struct):
    """What is assumed for one claim: a PersistentVolume, or a node where one is provisioned; `pods` by UID wait."""

    volume: str
    node: str
    pods: set[str]


class Assumptions:
    """By claim, the volume or node that was chosen for it. Several pods may wait for one claim."""

    def __init__(self) -> None:
        self._claims: dict[ClaimKey, _Assumed] = {}
        self._volumes: dict[str, ClaimKey] = {}
        self._of_pod: dict[str, tuple[ClaimKey, ...]] = {}

    def add(self, uid: str, node: str, bindings: VolumeBindings) -> None:
        """Assume what was chosen for a pod on `node`."""
        chosen = [(match.claim, match.volume, "") for match in bindings.matches]
        chosen += [(claim, "", node) for claim in bindings.provisioned]
        for claim, volume, selected in chosen:
            assumed = self._claims.get(claim)
            if assumed is None:
                assumed = self._claims[claim] = _Assumed(volume, selected, set())
                if volume:
                    self._volumes[volume] = claim
            assumed.pods.add(uid)
        self._of_pod[uid] = tuple(claim for claim, _, _ in chosen)

    def is_waiting(self, uid: str) -> bool:
        """Whether something was assumed for a pod, which the API server may show already."""
        return uid in self._of_pod

    def remove(self, uid: str) -> Iterator[str]:
        """Give back what is assumed for a pod; iterate over the volumes that nothing is assumed about any more."""
        for claim in self._of_pod.pop(uid, ()):
            assumed = self._claims.get(claim)
            if assumed is not None:
                assumed.pods.discard(uid)
                if not assumed.pods:
                    yield from self.end(claim)

    def end(self, claim: ClaimKey) -> Iterator[str]:
        """End what is assumed about a claim; iterate over its volume if one was assumed."""
        assumed = self._claims.pop(claim, None)
        if assumed is not None and assumed.volume:
            del self._volumes[assumed.volume]
            yield assumed.volume

    def claim_of(self, volume: str) -> ClaimKey | None:
        """Return the claim that a volume is assumed for, or None."""
        return self._volumes.get(volume)

    def volume_of(self, claim: ClaimKey) -> str:
        """Return the volume that is assumed for a claim, or an empty string."""
        assumed = self._claims.get(claim)
        return assumed.volume if assumed is not None else ""

    def node_of(self, claim: ClaimKey) -> str:
        """Return the node where a volume is assumed to be provisioned for a claim, or an empty string."""
        assumed = self._claims.get(claim)
        return assumed.node if assumed is not None else ""
