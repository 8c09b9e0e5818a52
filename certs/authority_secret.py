"""The Secret that holds the webhook's authorities, shared by every replica.

The first replica creates it. Where the Secret already exists the API server refuses the create, and the replica reads
the existing one. Every change names the resourceVersion that it was made from, so of two concurrent changes one is
refused and reads again. The content is checked before anything is signed with it, because a leaf of a broken authority
would fail only in the API server, far from the cause.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from allocation.names import SYSTEM_NAMESPACE
from certs.authorities import Authorities, Retired
from certs.x509 import KeyPair, fingerprint
from cluster.api import Api
from cluster.resource import SECRETS

SECRET = "tranche-webhook-ca"  # noqa: S105 -- the name of an object, not a password

_SIGNING = ("tls.crt", "tls.key")
_ANNOUNCED = ("announced.crt", "announced.key")
_RETIRED = "retired.crt"
_RETIRED_UNTIL = "retired.until"
_LEAF_GENERATION = "leaf.generation"


class BrokenAuthorityError(Exception):
    """The Secret exists, but its content cannot sign a leaf: an administrator has to decide."""

    def __init__(self, *, field: str, problem: str) -> None:
        """State what is wrong with `field` of the Secret, and how to replace it."""
        super().__init__(
            f'Secret {SYSTEM_NAMESPACE}/{SECRET}: data["{field}"] {problem}; restore the right key pair, or delete the'
            f" Secret (kubectl -n {SYSTEM_NAMESPACE} delete secret {SECRET}) to have a new authority created"
        )


class Stored(msgspec.Struct, frozen=True):
    """The content of the Secret at one resourceVersion."""

    authorities: Authorities
    version: str


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Secret(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    data: dict[str, str] | None = None


async def read(api: Api, *, now: datetime) -> Stored:
    """Return the authorities of the Secret.

    Raises:
        NotFoundError: the Secret does not exist.
        BrokenAuthorityError: the Secret cannot be used.
        ClusterError: the API server refused or did not answer.
    """
    secret = await api.get(SECRETS, _Secret, name=SECRET, namespace=SYSTEM_NAMESPACE)
    return Stored(_decoded(secret.data or {}, now), secret.metadata.resource_version)


async def create(api: Api, authorities: Authorities) -> None:
    """Create the Secret.

    Raises:
        ConflictError: another replica created it first; read that one.
        ClusterError: the API server refused or did not answer.
    """
    manifest = {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {
            "name": SECRET,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/name": "tranche", "app.kubernetes.io/component": "webhook"},
        },
        "type": "kubernetes.io/tls",
        "data": {key: value for key, value in _encoded(authorities).items() if value is not None},
    }
    await api.create(SECRETS, manifest, namespace=SYSTEM_NAMESPACE)


async def replace(api: Api, stored: Stored, authorities: Authorities) -> None:
    """Write `authorities` in place of `stored`; other keys of the Secret are left alone.

    Raises:
        ConflictError: the Secret has changed since, or was replaced by another.
        NotFoundError: the Secret has been deleted.
        ClusterError: the API server refused or did not answer.
    """
    change = {"metadata": {"resourceVersion": stored.version}, "data": _encoded(authorities)}
    await api.merge(SECRETS, change, name=SECRET, namespace=SYSTEM_NAMESPACE)


def _encoded(authorities: Authorities) -> dict[str, str | None]:
    """Return the value of each key that this module writes, or None for a key to be removed."""
    values: dict[str, bytes | None] = dict.fromkeys((*_ANNOUNCED, _RETIRED, _RETIRED_UNTIL, _LEAF_GENERATION))
    for keys, pair in ((_SIGNING, authorities.signing), (_ANNOUNCED, authorities.announced)):
        if pair is not None:
            values |= dict(zip(keys, (pair.certificate_pem, pair.key_pem), strict=True))
    if authorities.retired:
        values[_RETIRED] = b"".join(each.certificate.public_bytes(Encoding.PEM) for each in authorities.retired)
        values[_RETIRED_UNTIL] = msgspec.json.encode(
            {fingerprint(each.certificate): each.until for each in authorities.retired}
        )
    if authorities.leaf_generation:
        values[_LEAF_GENERATION] = authorities.leaf_generation.encode()
    return {key: value if value is None else base64.b64encode(value).decode() for key, value in values.items()}


def _decoded(data: Mapping[str, str], now: datetime) -> Authorities:
    signing = _pair(data, _SIGNING, now)
    try:
        announced = _pair(data, _ANNOUNCED, now)
    except BrokenAuthorityError:
        announced = None  # not in use yet: the next rotation writes another
    retired = (each for each in _retired(data) if each.certificate != signing.certificate)
    return Authorities(signing, announced, tuple(retired), _leaf_generation(data))


def _pair(data: Mapping[str, str], keys: tuple[str, str], now: datetime) -> KeyPair:
    certificate_key, private_key = keys
    certificate_pem = _bytes(data, certificate_key)
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise BrokenAuthorityError(field=certificate_key, problem=f"is not a PEM certificate ({error})") from None
    if not _may_sign(certificate):
        raise BrokenAuthorityError(field=certificate_key, problem="is not the certificate of an authority (CA:TRUE)")
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now < end:
        raise BrokenAuthorityError(
            field=certificate_key, problem=f"is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, not on {now:%Y-%m-%d}"
        )
    try:
        return KeyPair.from_pem(certificate_pem=certificate_pem, key_pem=_bytes(data, private_key))
    except (ValueError, TypeError) as error:
        raise BrokenAuthorityError(field=private_key, problem=str(error)) from None


def _retired(data: Mapping[str, str]) -> list[Retired]:
    """Return the retired authorities; one without a readable end is trusted until it expires."""
    if _RETIRED not in data:
        return []
    try:
        certificates = x509.load_pem_x509_certificates(_bytes(data, _RETIRED))
    except (BrokenAuthorityError, ValueError):
        return []
    try:
        until = msgspec.json.decode(_bytes(data, _RETIRED_UNTIL), type=dict[str, datetime])
    except (BrokenAuthorityError, msgspec.DecodeError):
        until = {}
    return [Retired(each, until.get(fingerprint(each), each.not_valid_after_utc)) for each in certificates]


def _leaf_generation(data: Mapping[str, str]) -> str:
    """Return the generation; any text is valid, because it is only compared."""
    return _bytes(data, _LEAF_GENERATION).decode(errors="replace") if _LEAF_GENERATION in data else ""


def _bytes(data: Mapping[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(data[key], validate=True)
    except KeyError:
        raise BrokenAuthorityError(field=key, problem="is missing") from None
    except binascii.Error as error:
        raise BrokenAuthorityError(field=key, problem=f"is not base64 ({error})") from None


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (x509.ExtensionNotFound, ValueError):
        return False
    return constraints.ca
