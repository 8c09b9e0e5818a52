"""Finds the GpuClaims that pods name: in a local copy, or by one read if the copy does not have the claim yet."""

import asyncio
import logging
from typing import Final, Protocol

import msgspec

from allocation.claim import ClaimSpec
from cluster.api import Api
from cluster.errors import ApiError, ClusterError, NotFoundError
from cluster.gpu_claim import GpuClaim
from cluster.informer import SURVIVED, Informer
from cluster.resource import GPU_CLAIMS

log = logging.getLogger(__name__)

_READ_SECONDS: Final = 1.0
"""The time limit of a read; the API server waits five seconds for the review (manifests/base/webhook.yaml)."""


class UncachedClaimError(Exception):
    """The local copy does not have the claim that a pod names: the review is answered after a read."""

    def __init__(self, namespace: str, name: str) -> None:
        """Name the claim."""
        super().__init__(f"{namespace}/{name}")
        self.namespace = namespace
        self.name = name


class ReadClaim(msgspec.Struct, frozen=True):
    """The result of a read.

    Attributes:
        spec: of the claim; None if it does not exist, or could not be read.
        failure: why it could not be read; empty otherwise.
    """

    spec: ClaimSpec | None = None
    failure: str = ""


class ClaimLookup(Protocol):
    """Finds claims by namespace and name."""

    def cached(self, namespace: str, name: str) -> ClaimSpec | None:
        """Return the spec of a claim, or None if the local copy does not have it."""

    async def read(self, namespace: str, name: str) -> ReadClaim:
        """Read a claim from the API server."""


class ClusterClaims:
    """The claims of a cluster.

    Attributes:
        informer: keeps the local copy; it must run.
    """

    def __init__(self, api: Api) -> None:
        """Use `api` for the copy and for reads."""
        self._api = api
        self.informer = Informer(api, GPU_CLAIMS, GpuClaim)

    def cached(self, namespace: str, name: str) -> ClaimSpec | None:
        """See ClaimLookup."""
        claim = self.informer.get(name, namespace)
        return None if claim is None else claim.spec

    async def read(self, namespace: str, name: str) -> ReadClaim:
        """See ClaimLookup; the result is at least as new as the call, so a missing claim does not exist."""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                # A list, because the right to list is there for the copy anyway.
                found = await self._api.list(
                    GPU_CLAIMS, GpuClaim, namespace=namespace, fieldSelector=f"metadata.name={name}"
                )
        except NotFoundError:  # the API server does not serve the kind
            return ReadClaim()
        except TimeoutError:
            return ReadClaim(failure=f"the API server did not answer within {_READ_SECONDS:g} s")
        except SURVIVED as error:
            log.warning("GpuClaim %s/%s: %s", namespace, name, error)
            return ReadClaim(failure=_reason(error))
        return ReadClaim(found[0].spec if found else None)


def _reason(error: Exception) -> str:
    """Return what a user is told of an error; the details are for the log."""
    if isinstance(error, ApiError) and not error.is_transient:
        return "the API server refuses it"
    return "the API server cannot be reached" if isinstance(error, ClusterError) else "it is malformed"
