"""A replica's part where somebody else makes the certificates: it follows a folder, and never before API servers do."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

from certs import ca_bundle
from certs.ca_bundle import Published
from certs.leaf import Leaf, ServerNames, UnusableLeafError, prove
from certs.mounted import MountedPair, MountedSource
from certs.settling import Settling
from cluster.api import Api


class MountedUpkeep:
    """Holds a new pair back until the caBundle has verified it for the settle time.

    With `publishes`, what the folder's `ca.crt` holds is added to the caBundle, and what has expired is taken from it.
    Without, somebody else writes it, as cert-manager's cainjector does.

    Attributes:
        source: what the listener shows.
    """

    def __init__(
        self,
        api: Api,
        source: MountedSource,
        *,
        names: ServerNames,
        configuration: str,
        publishes: bool,
        settle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._names = names
        self._configuration = configuration
        self._publishes = publishes
        self._settling = Settling(seconds=settle_seconds, clock=clock)
        self.source = source

    async def once(self, *, now: datetime) -> tuple[str, ...]:
        """See `certs.upkeep.Upkeep`; what is published verifies our leaf then."""
        fault: UnusableLeafError | None = None
        try:
            found = await asyncio.to_thread(self.source.read, now=now)
        except UnusableLeafError as error:
            found, fault = self.source.pair, error
        published = await ca_bundle.read(self._api, configuration=self._configuration)
        wrote: tuple[str, ...] = ()
        if self._publishes and await self._publish(published, found, now):
            wrote = (f"caBundle of {self._configuration}",)
            published = await ca_bundle.read(self._api, configuration=self._configuration)
        self._settling.observe(published)
        if found.leaf.certificate != self.source.leaf.certificate:
            is_believed = self._settling.is_over and not self._objection(found.leaf, published)
            if is_believed or not self.source.leaf.lasts(now):
                self.source.pair = found
        objection = self._objection(self.source.leaf, published)
        if fault is None and objection:
            fault = UnusableLeafError(f"MutatingWebhookConfiguration {self._configuration}: {objection}")
        if fault is not None:
            raise fault
        return wrote

    async def _publish(self, published: Published, found: MountedPair, now: datetime) -> bool:
        """Add what is missing: another replica may have other files for a while, so nothing else is taken away."""
        wanted = {each for each in published.every if now < each.not_valid_after_utc}
        wanted |= {*found.trusted, *self.source.pair.trusted}
        bundle = ca_bundle.joined(wanted)
        if all(each == bundle for each in published.bundles.values()):
            return False
        await ca_bundle.write(self._api, published, bundle=bundle, configuration=self._configuration)
        return True

    def _objection(self, leaf: Leaf, published: Published) -> str:
        """Answer why an API server that goes by what is published does not believe a leaf, empty where it does."""
        for entry, bundle in published.bundles.items():
            if not ca_bundle.certificates(bundle):
                return f"entry {entry} has no caBundle"
            try:
                prove(leaf.context, trusted_pem=bundle, names=self._names)
            except UnusableLeafError as error:
                return f"caBundle of entry {entry}: {error}"
        return ""
