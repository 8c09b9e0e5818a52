"""Reconciles a replica that issues its own certificate: a new authority is used once API servers trust it."""

from datetime import datetime
from typing import Protocol

from certs.authority_reconciler import AuthorityReconciler
from certs.source import IssuedSource, LeafSource


class ReplicaReconciler(Protocol):
    """Reconciles the certificate that a replica serves with the authorities that API servers trust."""

    @property
    def source(self) -> LeafSource:
        """The source of the listener's certificate."""

    async def reconcile(self, *, now: datetime) -> tuple[str, ...]:
        """Take every step that is possible now; return the names of the objects that were written, for logs.

        Raises:
            UnusableLeafError: a new leaf fails verification; the previous one stays in service.
            NotFoundError: the configuration does not exist; apply the manifests.
            BrokenAuthorityError: the Secret cannot be used.
            ClusterError: the API server refused or did not answer.
        """


class IssuedReconciler:
    """Reconciles the shared objects through `authority_reconciler`, then the leaf of `source`."""

    def __init__(self, authority_reconciler: AuthorityReconciler, source: IssuedSource) -> None:
        self._authority_reconciler = authority_reconciler
        self.source = source

    async def reconcile(self, *, now: datetime) -> tuple[str, ...]:
        """See `ReplicaReconciler`; afterwards the caBundle holds the authority of the leaf in service."""
        reconciled = await self._authority_reconciler.reconcile(now=now, serving=self.source.leaf.authority)
        authorities = reconciled.authorities
        signing = authorities.signing
        if (
            signing.certificate == self.source.leaf.authority
            or self._authority_reconciler.is_trusted(signing.certificate)
            or not self.source.leaf.is_usable(now)  # it is about to expire, so an untrusted leaf does no more harm
        ):
            self.source.renew(signing, generation=authorities.leaf_generation, now=now)
        self.source.prepare_next(authorities.next_signer(self.source.leaf.authority), now=now)
        return reconciled.wrote
