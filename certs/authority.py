"""The certificate authority of the admission webhook: one Secret that every replica shares.

Whoever comes first creates it; the create is refused where the Secret exists, and then the other's is read. What is
read is checked before anything is signed with it, because a leaf of a broken authority fails in the API server, far
from its cause.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from cryptography import x509

from allocation.names import SYSTEM_NAMESPACE
from certs.x509 import KeyPair, new_authority
from cluster.api import Api
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.resource import SECRETS

SECRET = "tranche-webhook-ca"  # noqa: S105 -- the name of an object, no password
CERTIFICATE_KEY = "tls.crt"
PRIVATE_KEY_KEY = "tls.key"

_COMMON_NAME = "tranche webhook CA"
_LIFETIME = timedelta(days=3650)
_ATTEMPTS = 5


class BrokenAuthorityError(Exception):
    """The Secret exists, but no leaf can be signed with what it holds: a person has to decide."""

    def __init__(self, *, field: str, problem: str) -> None:
        """Say what is wrong with `field` of the Secret, and how to get a new one."""
        super().__init__(
            f'Secret {SYSTEM_NAMESPACE}/{SECRET}, data["{field}"]: {problem}; put the right pair back, or delete the'
            f" Secret (kubectl -n {SYSTEM_NAMESPACE} delete secret {SECRET}) and a new authority is made"
        )


class _Secret(msgspec.Struct):
    data: dict[str, str] | None = None


async def ensure_authority(api: Api, *, now: datetime) -> KeyPair:
    """Answer the authority, making one where there is none.

    Raises:
        BrokenAuthorityError: there is one that cannot be used.
        ClusterError: the API server refused or did not answer.
    """
    for _ in range(_ATTEMPTS):
        try:
            return await read_authority(api, now=now)
        except NotFoundError:
            pass
        made = new_authority(_COMMON_NAME, lifetime=_LIFETIME, now=now)
        try:
            await api.create(SECRETS, _manifest(made), namespace=SYSTEM_NAMESPACE)
        except ConflictError:
            continue  # another replica was faster: its authority is the one
        return made
    raise ClusterError(
        f"Secret {SYSTEM_NAMESPACE}/{SECRET} neither stays nor can be created: something keeps deleting it; find out"
        f" who with kubectl -n {SYSTEM_NAMESPACE} get secret {SECRET} --watch"
    )


async def read_authority(api: Api, *, now: datetime) -> KeyPair:
    """Answer the authority that is there.

    Raises:
        NotFoundError: there is none.
        BrokenAuthorityError: it cannot be used.
        ClusterError: the API server refused or did not answer.
    """
    secret = await api.get(SECRETS, _Secret, name=SECRET, namespace=SYSTEM_NAMESPACE)
    return _validated(secret.data or {}, now)


def _validated(data: Mapping[str, str], now: datetime) -> KeyPair:
    certificate_pem = _decoded(data, CERTIFICATE_KEY)
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise BrokenAuthorityError(field=CERTIFICATE_KEY, problem=f"is no PEM certificate ({error})") from None
    if not _may_sign(certificate):
        raise BrokenAuthorityError(field=CERTIFICATE_KEY, problem="is the certificate of no authority (CA:TRUE)")
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begin <= now < end:
        raise BrokenAuthorityError(
            field=CERTIFICATE_KEY, problem=f"is valid from {begin:%Y-%m-%d} to {end:%Y-%m-%d}, not on {now:%Y-%m-%d}"
        )
    try:
        return KeyPair.from_pem(certificate_pem=certificate_pem, key_pem=_decoded(data, PRIVATE_KEY_KEY))
    except (ValueError, TypeError) as error:
        raise BrokenAuthorityError(field=PRIVATE_KEY_KEY, problem=str(error)) from None


def _decoded(data: Mapping[str, str], key: str) -> bytes:
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


def _manifest(authority: KeyPair) -> Mapping[str, object]:
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {
            "name": SECRET,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/name": "tranche", "app.kubernetes.io/component": "webhook"},
        },
        "type": "kubernetes.io/tls",
        "data": {
            CERTIFICATE_KEY: base64.b64encode(authority.certificate_pem).decode(),
            PRIVATE_KEY_KEY: base64.b64encode(authority.key_pem).decode(),
        },
    }
