"""What is decided about the unbound claims of a pod, together with its node."""

import msgspec


class ClaimKey(msgspec.Struct, frozen=True):
    """A PersistentVolumeClaim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"


class Match(msgspec.Struct, frozen=True):
    """An existing PersistentVolume that is bound to a claim."""

    claim: ClaimKey
    volume: str


class VolumeBindings(msgspec.Struct, frozen=True):
    """The unbound claims of a pod whose node is chosen; empty if every claim is bound, or the pod has none.

    Attributes:
        matches: the claims that get an existing PersistentVolume, whose `spec.claimRef` has to be written.
        provisioned: the claims for which a volume is provisioned on the node, which the annotation
            `volume.kubernetes.io/selected-node` has to name.
    """

    matches: tuple[Match, ...] = ()
    provisioned: tuple[ClaimKey, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything has to be written before the pod is bound."""
        return bool(self.matches or self.provisioned)


NO_BINDINGS = VolumeBindings()
