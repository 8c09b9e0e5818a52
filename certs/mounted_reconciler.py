"""Reconciles a replica whose certificate comes from a folder: a new one is served once API servers trust it."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime

from certs import ca_bundle
from certs.ca_bundle import Published
from certs.leaf import Leaf, ServerNames, UnusableLeafError, check_handshake
from certs.mounted import MountedPair, MountedSource
from certs.stability import Stability
from cluster.api import Api


class MountedReconciler:
    """Holds a new pair back until the caBundle has verified it for the settle time.

    With `publishes`, it adds the folder's `ca.crt` to the caBundle and removes expired authorities from it. Without,
    another component such as cert-manager's cainjector writes the caBundle.

    Attributes:
        source: the source of the listener's certificate.
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
        self._stability = Stability(seconds=settle_seconds, clock=clock)
        self.source = source

    async def reconcile(self, *, now: datetime) -> tuple[str, ...]:
        """See `certs.replica_reconciler.ReplicaReconciler`; afterwards the caBundle verifies the leaf in service."""
        failure: UnusableLeafError | None = None
        try:
            pair = await asyncio.to_thread(self.source.read, now=now)
        except UnusableLeafError as error:
            pair, failure = self.source.pair, error
        published = await ca_bundle.read(self._api, configuration=self._configuration)
        wrote: tuple[str, ...] = ()
        if self._publishes and await self._publish(published, pair, now):
            wrote = (f"caBundle of {self._configuration}",)
            published = await ca_bundle.read(self._api, configuration=self._configuration)
        self._stability.record(published)
        if pair.leaf.certificate != self.source.leaf.certificate:
            is_trusted = self._stability.is_stable and not self._problem(pair.leaf, published)
            if is_trusted or not self.source.leaf.is_usable(now):
                self.source.pair = pair
        problem = self._problem(self.source.leaf, published)
        if failure is None and problem:
            failure = UnusableLeafError(f"MutatingWebhookConfiguration {self._configuration}: {problem}")
        if failure is not None:
            raise failure
        return wrote

    async def _publish(self, published: Published, pair: MountedPair, now: datetime) -> bool:
        """Add missing authorities; remove only expired ones, because other replicas may still have other files."""
        wanted = {each for each in published.all_certificates if now < each.not_valid_after_utc}
        wanted |= {*pair.trusted, *self.source.pair.trusted}
        bundle = ca_bundle.to_pem(wanted)
        if all(each == bundle for each in published.bundles.values()):
            return False
        await ca_bundle.write(self._api, published, bundle=bundle, configuration=self._configuration)
        return True

    def _problem(self, leaf: Leaf, published: Published) -> str:
        """Return the reason why the published caBundles do not verify `leaf`, or an empty string."""
        for entry, bundle in published.bundles.items():
            if not ca_bundle.certificates(bundle):
                return f"entry {entry} has no caBundle"
            try:
                check_handshake(leaf.context, trusted_pem=bundle, names=self._names)
            except UnusableLeafError as error:
                return f"caBundle of entry {entry}: {error}"
        return ""
