"""The GpuClaim object: the cards that a pod with annotation `gpu.scheduling/claim` gets."""

import msgspec

from allocation.claim import ClaimSpec
from cluster.metadata import ObjectMeta


class GpuClaim(msgspec.Struct):
    """A claim. Its spec never changes; its status is only for people, and nothing decides by it."""

    metadata: ObjectMeta
    spec: ClaimSpec
