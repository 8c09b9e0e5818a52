"""A replica's part in keeping certificates: its leaf follows the authorities, and never before the API servers do."""

from datetime import datetime

from certs.keeper import Keeper, Kept
from certs.source import IssuedSource


class Upkeep:
    """Keeps the shared objects through `keeper`, and the leaf of `source` after them.

    Attributes:
        source: what the listener shows.
    """

    def __init__(self, keeper: Keeper, source: IssuedSource) -> None:
        self._keeper = keeper
        self.source = source

    async def once(self, *, now: datetime) -> Kept:
        """Put right what is not; what is published holds the authority of our leaf then.

        Raises:
            UnusableLeafError: a new leaf does not stand verification; the one before stays in service.
            NotFoundError: the configuration does not exist; apply the manifests.
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """
        kept = await self._keeper.tick(now=now, serving=self.source.leaf.authority)
        signing = kept.authorities.signing
        if (
            signing.certificate == self.source.leaf.authority
            or self._keeper.has_settled(signing.certificate)
            or now >= self.source.leaf.ends_at  # nobody believes it any more: what comes next is no worse
        ):
            self.source.renew(signing, now=now)
        return kept
