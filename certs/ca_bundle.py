"""The caBundle of the MutatingWebhookConfiguration: the authorities by which the API server verifies the webhook."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from cluster.resource import MUTATING_WEBHOOKS

if TYPE_CHECKING:  # CONFIGURATION is also imported by code that does not use an API server
    from collections.abc import Iterable

    from cluster.api import Api

CONFIGURATION = "tranche"

_JSON_PATCH = "application/json-patch+json"


class _ClientConfig(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, rename="camel"):
    name: str
    client_config: _ClientConfig


class _Meta(msgspec.Struct, rename="camel"):
    uid: str = ""
    generation: int = 0
    resource_version: str = ""


class _Configuration(msgspec.Struct):
    metadata: _Meta
    webhooks: list[_Webhook] = []


class Published(msgspec.Struct, frozen=True):
    """The content of the configuration at one resourceVersion.

    Attributes:
        bundles: the caBundle (PEM) of each entry by its name; empty where an entry has none.
        version: the resourceVersion.
        revision: changes if and only if an entry changes.
    """

    bundles: dict[str, bytes]
    version: str
    revision: tuple[str, int]

    @property
    def common_certificates(self) -> frozenset[x509.Certificate]:
        """The authorities that are in every entry."""
        return frozenset.intersection(*(frozenset(certificates(each)) for each in self.bundles.values() or (b"",)))

    @property
    def all_certificates(self) -> frozenset[x509.Certificate]:
        """The authorities that are in any entry."""
        return frozenset(certificate for each in self.bundles.values() for certificate in certificates(each))


async def read(api: Api, *, configuration: str = CONFIGURATION) -> Published:
    """Return the caBundle of each entry.

    Raises:
        NotFoundError: the configuration does not exist; apply the manifests.
        ClusterError: the API server refused or did not answer.
    """
    current = await api.get(MUTATING_WEBHOOKS, _Configuration, name=configuration)
    return Published(
        bundles={webhook.name: _decoded(webhook.client_config.ca_bundle) for webhook in current.webhooks},
        version=current.metadata.resource_version,
        revision=(current.metadata.uid, current.metadata.generation),
    )


async def write(api: Api, published: Published, *, bundle: bytes, configuration: str = CONFIGURATION) -> None:
    """Write `bundle` (PEM) into every entry of the configuration that was read as `published`.

    Raises:
        ConflictError: the configuration has changed since.
        NotFoundError: the configuration has been deleted.
        ClusterError: the API server refused or did not answer.
    """
    wanted = base64.b64encode(bundle).decode()
    operations = [
        {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": published.version,
        },  # 409 if it has changed
        *(
            {"op": "add", "path": f"/webhooks/{position}/clientConfig/caBundle", "value": wanted}
            for position in range(len(published.bundles))
        ),
    ]
    path = MUTATING_WEBHOOKS.path(name=configuration)
    await api.request("PATCH", path, body=operations, content_type=_JSON_PATCH)


def certificates(bundle: bytes) -> list[x509.Certificate]:
    """Return the certificates of a caBundle, or an empty list where it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []


def to_pem(authorities: Iterable[x509.Certificate]) -> bytes:
    """Return a caBundle (PEM) with these certificates, in an order that depends only on them."""
    ordered = sorted(authorities, key=lambda each: (each.not_valid_before_utc, each.serial_number))
    return b"".join(each.public_bytes(Encoding.PEM) for each in ordered)


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""
