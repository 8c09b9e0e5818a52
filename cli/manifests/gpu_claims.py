"""The GpuClaims that the pods of manifests name: those of the files, and for other names those of the cluster."""

import argparse
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from allocation.claim import ClaimSpec
from cli.errors import CommandError
from cli.kube import gpu_claims
from cli.kube.session import Session, open_session
from cli.manifests.objects_in import objects_in
from cluster.errors import ClusterError
from cluster.gpu_claim import GpuClaim
from cluster.manifest import UnreadableManifestError
from cluster.resource import GPU_CLAIMS
from scheduler.api.manifest_gpu_claim import read_gpu_claim

_SECONDS: Final = 5.0


class UnknownClaimError(CommandError):
    """A pod names a claim that is nowhere, or that cannot be looked up."""


class GpuClaims:
    """The claims of files and of the cluster, which is asked only for names that the files do not have."""

    def __init__(self, claims: Iterable[GpuClaim], arguments: argparse.Namespace) -> None:
        """Take the claims of the files, and the flags that choose the cluster and the namespace."""
        self._of_files = tuple(claims)
        self._arguments = arguments

    def find(self, name: str, *, namespace: str) -> ClaimSpec:
        """Return a claim; an empty `namespace` is that of the command line or the kubeconfig.

        Raises:
            UnknownClaimError: it is nowhere, or the cluster cannot be asked.
        """
        own = namespace or self._default_namespace
        for claim in self._of_files:
            if (claim.metadata.namespace or self._default_namespace, claim.metadata.name) == (own, name):
                return claim.spec
        if isinstance(self._session, CommandError):
            raise _unasked(name, self._session)
        try:
            found = gpu_claims.find(self._session.client, name, namespace=own)
        except (CommandError, ClusterError) as error:
            raise _unasked(name, error) from None
        if found is None:
            raise UnknownClaimError(
                f"GpuClaim {name} is neither in the files nor in namespace {own} of the cluster; add it to the files,"
                " or create it first"
            )
        return found.spec

    @cached_property
    def _session(self) -> Session | CommandError:
        try:
            return open_session(self._arguments, timeout=_SECONDS)
        except CommandError as error:
            return error

    @property
    def _default_namespace(self) -> str:
        if self._arguments.namespace or isinstance(self._session, CommandError):
            return self._arguments.namespace or "default"
        return self._session.namespace


def claims_of(documents: Iterable[object]) -> list[GpuClaim]:
    """Return the claims of documents.

    Raises:
        CommandError: the API server would refuse a claim.
    """
    kind = (GPU_CLAIMS.api_version, GPU_CLAIMS.kind)
    objects = (each for document in documents for each in objects_in(document))
    try:
        return [read_gpu_claim(each) for each in objects if (each.get("apiVersion"), each.get("kind")) == kind]
    except UnreadableManifestError as error:
        raise CommandError(str(error)) from None


def _unasked(name: str, error: Exception) -> UnknownClaimError:
    return UnknownClaimError(
        f"GpuClaim {name} is not in the files, and the cluster cannot be asked: {error}; add the claim to the files"
    )
