"""A replica's part in keeping certificates: what it shows follows the authorities, and never before API servers do."""

from datetime import datetime
from typing import Protocol

from certs.keeper import Keeper
from certs.source import IssuedSource, LeafSource


class Upkeep(Protocol):
    """Whatever keeps a source and what API servers believe of it."""

    @property
    def source(self) -> LeafSource:
        """What the listener shows."""

    async def once(self, *, now: datetime) -> tuple[str, ...]:
        """Put right what is not; answer what was written, for logs.

        Raises:
            UnusableLeafError: a new leaf does not stand verification; the one before stays in service.
            NotFoundError: the configuration does not exist; apply the manifests.
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """


class IssuedUpkeep:
    """Keeps the shared objects through `keeper`, and the leaf of `source` after them."""

    def __init__(self, keeper: Keeper, source: IssuedSource) -> None:
        self._keeper = keeper
        self.source = source

    async def once(self, *, now: datetime) -> tuple[str, ...]:
        """See `Upkeep`; what is published holds the authority of our leaf then."""
        kept = await self._keeper.tick(now=now, serving=self.source.leaf.authority)
        signing = kept.authorities.signing
        if (
            signing.certificate == self.source.leaf.authority
            or self._keeper.is_believed(signing.certificate)
            or not self.source.leaf.lasts(now)  # nobody will believe it any more: what comes next is no worse
        ):
            self.source.renew(signing, generation=kept.authorities.leaf_generation, now=now)
        self.source.rehearse(kept.authorities.next_signer(self.source.leaf.authority), now=now)
        return kept.wrote
