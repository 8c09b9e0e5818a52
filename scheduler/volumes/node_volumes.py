"""The volumes that the pods of each node use, and the VolumeAttachments of each node."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import msgspec

from scheduler.objects import Pod
from scheduler.volumes import in_tree, pod_claims, restrictions
from scheduler.volumes.bindings import ClaimKey
from scheduler.volumes.in_tree import Attachment
from scheduler.volumes.restrictions import Disk


class _Use(msgspec.Struct, frozen=True):
    """The volumes that one pod uses on its node."""

    node: str
    claims: frozenset[ClaimKey]
    inline: tuple[Attachment, ...]
    disks: tuple[Disk, ...]


class Attached(msgspec.Struct, frozen=True):
    """The volumes that CSI drivers attach to a node.

    Attributes:
        in_use: drivers and handles of those that its pods use.
        counts: by driver, how many there are, with those that no pod uses any more.
    """

    in_use: frozenset[tuple[str, str]]
    counts: Mapping[str, int]


class NodeVolumes:
    """The volumes in use, by node and by claim."""

    def __init__(self) -> None:
        self._pods: dict[str, _Use] = {}
        self._on_node: defaultdict[str, dict[str, _Use]] = defaultdict(dict)
        self._nodes_of: defaultdict[ClaimKey, Counter[str]] = defaultdict(Counter)
        self._attachments: defaultdict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        self._most: Counter[str] = Counter()

    def add_pod(self, pod: Pod, node: str) -> None:
        """Count the volumes of a pod on `node`."""
        keys = (pod_claims.key_of(volume, pod) for volume in pod.spec.volumes)
        inline = (in_tree.attachment(volume) for volume in pod.spec.volumes)
        use = _Use(
            node,
            frozenset(key for key in keys if key is not None),
            tuple(each for each in inline if each is not None),
            restrictions.disks(pod.spec.volumes),
        )
        self._pods[pod.uid] = self._on_node[node][pod.uid] = use
        self._most[node] += len(use.claims) + len(use.inline)
        for key in use.claims:
            self._nodes_of[key][node] += 1

    def remove_pod(self, uid: str) -> bool:
        """Stop counting the volumes of a pod; return whether they were counted."""
        use = self._pods.pop(uid, None)
        if use is None:
            return False
        pods = self._on_node[use.node]
        del pods[uid]
        self._most[use.node] -= len(use.claims) + len(use.inline)
        if not pods:
            del self._on_node[use.node], self._most[use.node]
        for key in use.claims:
            nodes = self._nodes_of[key]
            nodes[use.node] -= 1
            if not nodes[use.node]:
                del nodes[use.node]
            if not nodes:
                del self._nodes_of[key]
        return True

    def set_attachment(self, name: str, node: str, driver: str, volume: str) -> None:
        """Set a VolumeAttachment: a driver attaches a PersistentVolume to a node."""
        self._attachments[node][name] = (driver, volume)

    def drop_attachment(self, name: str, node: str) -> None:
        """Forget a VolumeAttachment."""
        attachments = self._attachments.get(node, {})
        attachments.pop(name, None)
        if not attachments:
            self._attachments.pop(node, None)

    def nodes_of(self, claim: ClaimKey) -> Collection[str]:
        """Return the nodes of the pods that use a claim."""
        return self._nodes_of.get(claim, {}).keys()

    def disks_on(self, node: str) -> Iterator[Disk]:
        """Iterate over the disks that the specs of a node's pods name."""
        return (disk for use in self._uses(node) for disk in use.disks)

    def most_attached(self, node: str) -> int:
        """Return a number that is not less than that of the volumes that are attached to a node."""
        return self._most[node] + len(self._attachments.get(node, ()))

    def attached(
        self,
        node: str,
        *,
        of_claim: Callable[[ClaimKey], Attachment | None],
        of_volume: Callable[[str], str],
        migrated: Collection[str],
    ) -> Attached:
        """Return what is attached to a node, or will be.

        Args:
            node: its name.
            of_claim: returns what is attached for a claim.
            of_volume: returns the handle of the CSI volume of this name, or an empty string.
            migrated: the in-tree plugins that the node has migrated.
        """
        found: set[tuple[str, str]] = set()
        for use in self._uses(node):
            for each in (*use.inline, *map(of_claim, use.claims)):
                if each is not None and (not each.plugin or each.plugin in migrated):
                    found.add((each.driver, each.handle))
        rest = {(driver, of_volume(name)) for driver, name in self._attachments.get(node, {}).values()}
        rest = {each for each in rest if all(each)}
        return Attached(frozenset(found), Counter(driver for driver, _ in found | rest))

    def _uses(self, node: str) -> Iterable[_Use]:
        return self._on_node.get(node, {}).values()
