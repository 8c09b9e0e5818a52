"""What a claim of a scheduled pod needs before the pod is bound: a volume reserved for it, or provisioned for the node.

Both kinds are written, watched and taken back by the same three methods.
"""

from collections.abc import Callable, Container, Hashable
from functools import partial
from typing import Final, Protocol

import msgspec

from cluster.informer import HasMeta
from cluster.resource import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from scheduler.binding import conditional_patch, volume_writes
from scheduler.binding.volume_writes import NotBoundError, key_of
from scheduler.fenced_api import FencedApi
from scheduler.objects import Node, Pod
from scheduler.volumes.bindings import ClaimKey, VolumeBindings
from scheduler.volumes.objects import SELECTED_NODE, Claim, PersistentVolume

_NEXT: Final = "`kubectl describe pvc` may show why; the pod is scheduled again"


class Shown(msgspec.Struct, frozen=True):
    """The objects as the informers show them, which may be a moment behind the API server.

    Attributes:
        claim: returns the claim with a key.
        volume: returns the PersistentVolume with a name.
        node: returns the node with a name.
        pod: returns the pod with a name, in a namespace.
        migrated: returns the in-tree plugins that the node with a name has migrated to CSI drivers.
    """

    claim: Callable[[ClaimKey], Claim | None]
    volume: Callable[[str], PersistentVolume | None]
    node: Callable[[str], Node | None]
    pod: Callable[[str, str], Pod | None]
    migrated: Callable[[str], Container[str]]


class VolumeStep(Protocol):
    """One claim that needs a volume."""

    @property
    def claim(self) -> Claim:
        """The claim as it was when its pod was scheduled, or when it was written."""

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The objects whose changes concern this step: the key of a claim, the name of a volume."""

    @property
    def missing(self) -> str:
        """What the claim waits for, for the message when the deadline passes."""

    async def write(self, fenced: FencedApi) -> None:
        """Write what others need to bind the claim.

        Raises:
            NotBoundError: another client decided otherwise.
            ClusterError: the API server refuses the write, or the object is gone.
        """

    def check(self, shown: Shown, claim: Claim) -> None:
        """Raise NotBoundError if what was written for the `claim`, which is not bound yet, was taken back."""

    async def take_back(self, fenced: FencedApi) -> None:
        """Take back what was written, unless another client has completed it."""


class Reserve:
    """An existing PersistentVolume is reserved for a claim."""

    def __init__(self, claim: Claim, volume: PersistentVolume) -> None:
        self.claim = claim
        self._volume = volume

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The claim and the volume."""
        return key_of(self.claim), self._volume.metadata.name

    @property
    def missing(self) -> str:
        """What the claim waits for."""
        return f"it was not bound to PersistentVolume {self._volume.metadata.name}, which is reserved for it"

    async def write(self, fenced: FencedApi) -> None:
        """Write the volume's `claimRef`."""
        change = partial(volume_writes.reserve, claim=self.claim)
        self._volume = await conditional_patch.patch(fenced, PERSISTENT_VOLUMES, self._volume, change)

    def check(self, shown: Shown, claim: Claim) -> None:
        """Raise NotBoundError if the volume is gone, or reserved for this claim no longer."""
        name = self._volume.metadata.name
        volume = shown.volume(name)
        if volume is None:
            raise NotBoundError(f"PersistentVolume {name}, reserved for claim {key_of(claim)}, was deleted")
        reference = volume.spec.claim_ref
        if _is_current(volume, self._volume) and (reference is None or reference.uid != claim.metadata.uid):
            raise NotBoundError(f"PersistentVolume {name} is not reserved for claim {key_of(claim)} any more")

    async def take_back(self, fenced: FencedApi) -> None:
        """Remove the volume's `claimRef`."""
        change = partial(volume_writes.release, claim_uid=self.claim.metadata.uid)
        await conditional_patch.patch(fenced, PERSISTENT_VOLUMES, self._volume, change, read_first=True)


class Provision:
    """A volume is provisioned for a claim, where the chosen node can use it."""

    def __init__(self, claim: Claim, node: str) -> None:
        self.claim = claim
        self._node = node

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The claim."""
        return (key_of(self.claim),)

    @property
    def missing(self) -> str:
        """What the claim waits for."""
        return f"no volume was provisioned for it on node {self._node}"

    async def write(self, fenced: FencedApi) -> None:
        """Write the claim's annotation selected-node."""
        change = partial(volume_writes.select_node, node=self._node, uid=self.claim.metadata.uid)
        self.claim = await conditional_patch.patch(fenced, PERSISTENT_VOLUME_CLAIMS, self.claim, change)

    def check(self, _shown: Shown, claim: Claim) -> None:
        """Raise NotBoundError if the provisioner removed the annotation, because the node does not suit it."""
        if claim.spec.volume_name or not _is_current(claim, self.claim):
            return
        selected = claim.metadata.annotations.get(SELECTED_NODE, "")
        if not selected:
            raise NotBoundError(f"the provisioner of claim {key_of(claim)} rejected node {self._node}: {_NEXT}")
        if selected != self._node:
            raise volume_writes.names_another(claim, self._node)

    async def take_back(self, fenced: FencedApi) -> None:
        """Remove the claim's annotation selected-node."""
        change = partial(volume_writes.deselect_node, node=self._node, uid=self.claim.metadata.uid)
        await conditional_patch.patch(fenced, PERSISTENT_VOLUME_CLAIMS, self.claim, change, read_first=True)


def steps(bindings: VolumeBindings, node: str, shown: Shown) -> list[VolumeStep]:
    """Return the steps for the unbound claims of a pod that was scheduled to `node`.

    Raises:
        NotBoundError: a claim or a volume was deleted meanwhile.
    """
    made: list[VolumeStep] = []
    for match in bindings.matches:
        volume = shown.volume(match.volume)
        if volume is None:
            raise NotBoundError(f"PersistentVolume {match.volume}, chosen for claim {match.claim}, was deleted")
        made.append(Reserve(_present(match.claim, shown), volume))
    return [*made, *(Provision(_present(key, shown), node) for key in bindings.provisioned)]


def _present(key: ClaimKey, shown: Shown) -> Claim:
    claim = shown.claim(key)
    if claim is None:
        raise NotBoundError(f"claim {key} was deleted")
    return claim


def _is_current(shown: HasMeta, written: HasMeta) -> bool:
    """Whether an object of an informer is not older than what was written.

    Versions of one object are numbers that grow, which kube-scheduler relies on for the same purpose.
    """
    return int(shown.metadata.resource_version) >= int(written.metadata.resource_version)
