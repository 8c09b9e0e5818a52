"""What the volumes of a pod require of its node, compiled once for many nodes."""

from collections.abc import Mapping

import msgspec

from allocation.reasons import NodeReason, NodeRejection
from scheduler.objects import Node
from scheduler.volumes.bindings import ClaimKey, Match, VolumeBindings
from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.label_index import Labels
from scheduler.volumes.matching import ClaimMatcher
from scheduler.volumes.node_affinity import VolumeAffinity
from scheduler.volumes.provisioning import Provisioning
from scheduler.volumes.restrictions import Disk
from scheduler.volumes.zones import Zones

_NOT_AVAILABLE = NodeRejection(
    NodeReason.VolumeNotAvailable, "node(s) didn't find available persistent volumes to bind", resolvable=False
)
_NO_CAPACITY = NodeRejection(
    NodeReason.StorageCapacityInsufficient, "node(s) did not have enough free storage", resolvable=False
)


class VolumeRequirements(msgspec.Struct, frozen=True, eq=False):
    """What bound claims and disks require of a node, whatever volumes other pods get.

    Attributes:
        key: equal for pods with equal requirements, and different for all others.
        affinities: those of the PersistentVolumes.
        zones: those of the PersistentVolumes.
        wanted: what has to be attached and may be attached already.
        unused: by CSI driver, how many volumes have to be attached that no other pod uses.
        disks: the disks that the pod's spec names.
        is_claim_taken: whether another pod uses a claim that only one pod may use.
        lacks_volume: whether a claim is bound to a PersistentVolume that does not exist.
    """

    key: bytes
    affinities: tuple[VolumeAffinity, ...] = ()
    zones: tuple[Zones, ...] = ()
    wanted: tuple[Attachment, ...] = ()
    unused: Mapping[str, int] = {}
    disks: tuple[Disk, ...] = ()
    is_claim_taken: bool = False
    lacks_volume: bool = False


class UnboundClaims(msgspec.Struct, frozen=True, eq=False):
    """The claims whose volumes are chosen together with the node.

    Attributes:
        selected: the nodes for which claims are provisioned already; the pod can only run there.
        started: the claims that are provisioned already.
        assumed: the claims that another pod, which is being bound, gets a volume for; none is provisioned for them.
        matchers: the other claims, the smallest first.
        provisioning: by claim, which nodes can get a new volume.
    """

    selected: frozenset[str]
    started: tuple[ClaimKey, ...]
    assumed: frozenset[ClaimKey]
    matchers: tuple[ClaimMatcher, ...]
    provisioning: Mapping[ClaimKey, Provisioning]

    def find(self, node: Node) -> VolumeBindings | NodeRejection:
        """Return what every claim would get on `node`, or why one of them gets nothing."""
        if not self.selected <= {node.metadata.name}:
            return _NOT_AVAILABLE
        matches: list[Match] = []
        taken: set[str] = set()
        provisioned = list(self.started)
        for matcher in self.matchers:
            volume = matcher.find(node, taken)
            if volume is None and matcher.key in self.assumed:
                return _NOT_AVAILABLE
            if volume is None:
                provisioned.append(matcher.key)
            else:
                taken.add(volume.name)
                matches.append(Match(matcher.key, volume.name))
        for key in provisioned:
            provisioning = self.provisioning[key]
            if not provisioning.is_possible(node):
                return _NOT_AVAILABLE
            if not provisioning.has_capacity(node):
                return _NO_CAPACITY
        return VolumeBindings(tuple(matches), tuple(provisioned))


class PodVolumes(msgspec.Struct, frozen=True, eq=False):
    """The volumes of a pod.

    Attributes:
        requirements: what bound claims and disks require.
        unbound: the unbound claims; None if it has none.
        labels: sets of labels; the pod's node must have one label of each set.
        problem: why the pod has to wait for a claim, whatever the nodes are; empty if it has not.
    """

    requirements: VolumeRequirements
    unbound: UnboundClaims | None = None
    labels: tuple[Labels, ...] = ()
    problem: str = ""
