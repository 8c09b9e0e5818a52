"""The caBundle of the MutatingWebhookConfiguration: by which authorities the API server verifies the webhook."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from cluster.resource import MUTATING_WEBHOOKS

if TYPE_CHECKING:  # the name of the configuration is also known where nobody talks to an API server
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
    """What the configuration holds at one version of it.

    Attributes:
        bundles: the caBundle (PEM) of each entry by its name, empty where it has none.
        version: the resourceVersion.
        revision: changes with every change of an entry, and with nothing else.
    """

    bundles: dict[str, bytes]
    version: str
    revision: tuple[str, int]

    @property
    def certificates(self) -> frozenset[x509.Certificate]:
        """The authorities that every entry has."""
        return frozenset.intersection(*(frozenset(certificates(each)) for each in self.bundles.values() or (b"",)))

    @property
    def every(self) -> frozenset[x509.Certificate]:
        """The authorities that any entry has."""
        return frozenset(one for each in self.bundles.values() for one in certificates(each))


async def read(api: Api, *, configuration: str = CONFIGURATION) -> Published:
    """Answer what is published.

    Raises:
        NotFoundError: the configuration does not exist; apply the manifests.
        ClusterError: the API server refused or did not answer.
    """
    found = await api.get(MUTATING_WEBHOOKS, _Configuration, name=configuration)
    return Published(
        bundles={webhook.name: _decoded(webhook.client_config.ca_bundle) for webhook in found.webhooks},
        version=found.metadata.resource_version,
        revision=(found.metadata.uid, found.metadata.generation),
    )


async def write(api: Api, found: Published, *, bundle: bytes, configuration: str = CONFIGURATION) -> None:
    """Write `bundle` (PEM) into every entry in the place of what was `found`; only caBundle is written.

    Raises:
        ConflictError: the configuration has changed since.
        NotFoundError: it is gone.
        ClusterError: the API server refused or did not answer.
    """
    wanted = base64.b64encode(bundle).decode()
    operations = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": found.version},  # 409 if it is another now
        *(
            {"op": "add", "path": f"/webhooks/{position}/clientConfig/caBundle", "value": wanted}
            for position in range(len(found.bundles))
        ),
    ]
    path = MUTATING_WEBHOOKS.path(name=configuration)
    await api.request("PATCH", path, body=operations, content_type=_JSON_PATCH)


def certificates(bundle: bytes) -> list[x509.Certificate]:
    """Answer the certificates of a caBundle, none where it cannot be read."""
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []


def joined(authorities: Iterable[x509.Certificate]) -> bytes:
    """Answer the PEM of a caBundle with these certificates, in an order that depends on nothing but them."""
    ordered = sorted(authorities, key=lambda each: (each.not_valid_before_utc, each.serial_number))
    return b"".join(each.public_bytes(Encoding.PEM) for each in ordered)


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle)
    except binascii.Error:
        return b""
