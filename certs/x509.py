"""X.509 on ECDSA P-256: a certificate authority and the leaves it issues.

Everything here depends on its arguments only, except for keys and serial numbers, which are random. Extensions follow
RFC 5280, sections 4.2.1.1 to 4.2.1.12. The caller of `issue` chooses what a leaf may do: server, client or both.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence

# A peer whose clock is slow must not reject an authority as not valid yet.
BACKDATE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and the private key that belongs to it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def from_pem(cls, *, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Return the pair of a certificate and a key, as `certificate_pem` and `key_pem` encode them.

        Raises:
            ValueError: either is not PEM, the key is not an elliptic curve key, or it belongs to another certificate.
        """
        certificate = x509.load_pem_x509_certificate(certificate_pem)
        key = serialization.load_pem_private_key(key_pem, password=None)
        subject = certificate.subject.rfc4514_string()
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"the private key of {subject} is not an elliptic curve key: use ECDSA P-256")  # noqa: TRY004
        if key.public_key() != certificate.public_key():
            raise ValueError(
                f"the private key does not belong to the certificate {subject}: use the key that it was created with"
            )
        return cls(certificate=certificate, key=key)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate, in the form of Kubernetes' `tls.crt` and `caBundle`."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The unencrypted PKCS #8 private key, in the form of Kubernetes' `tls.key`."""
        return private_key_pem(self.key)


def new_private_key() -> ec.EllipticCurvePrivateKey:
    """Return a new ECDSA P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as unencrypted PKCS #8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 fingerprint of a certificate in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def new_authority(common_name: str, *, lifetime: timedelta, now: datetime) -> KeyPair:
    """Return a self-signed authority that may issue leaves, but no further authorities."""
    key = new_private_key()
    name = _name(common_name)
    certificate = (
        _builder(subject=name, issuer=name, key=key, not_before=now - BACKDATE, not_after=now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(certificate_signing=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(certificate=certificate, key=key)


def issue(
    authority: KeyPair,
    *,
    common_name: str,
    organizations: Sequence[str] = (),
    dns_names: Sequence[str] = (),
    ip_addresses: Sequence[str] = (),
    lifetime: timedelta,
    now: datetime,
    server: bool = False,
    client: bool = False,
) -> KeyPair:
    """Return a leaf with a new key, signed by `authority`.

    Args:
        authority: the signer. The leaf never outlives it: a longer `lifetime` is cut at the authority's end.
        common_name: at most 64 characters; Kubernetes reads the user name of a client certificate from it.
        organizations: Kubernetes reads the groups of a client certificate from them.
        dns_names: names of the server. TLS clients verify only these, never the common name.
        ip_addresses: addresses of the server, in text form.
        lifetime: from `now` to the end. The validity begins with that of the authority, so a client that accepts the
            authority as valid accepts the leaf, even if the clock that issued it was fast.
        now: an aware datetime.
        server: the leaf may serve TLS.
        client: the leaf may authenticate a TLS client.

    Raises:
        ValueError: the leaf would have no usage, a name is too long, an address is invalid, or the authority has
            expired.
    """
    usages = [
        usage
        for allowed, usage in ((server, ExtendedKeyUsageOID.SERVER_AUTH), (client, ExtendedKeyUsageOID.CLIENT_AUTH))
        if allowed
    ]
    if not usages:
        raise ValueError(f"certificate {common_name}: choose server, client or both")
    issuer = authority.certificate
    if issuer.not_valid_after_utc <= now:
        raise ValueError(
            f"authority {issuer.subject.rfc4514_string()} expired on {issuer.not_valid_after_utc:%Y-%m-%d %H:%M} UTC:"
            f" create a new one before issuing {common_name}"
        )
    key = new_private_key()
    builder = (
        _builder(
            subject=_name(common_name, organizations),
            issuer=issuer.subject,
            key=key,
            not_before=issuer.not_valid_before_utc,
            not_after=min(now + lifetime, issuer.not_valid_after_utc),
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(certificate_signing=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    names += [x509.IPAddress(ip_address(address)) for address in ip_addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return KeyPair(certificate=builder.sign(authority.key, hashes.SHA256()), key=key)


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    """Return the distinguished name, with organizations first as Kubernetes tools write it."""
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _builder(
    *, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, not_before: datetime, not_after: datetime
) -> x509.CertificateBuilder:
    """Return a builder with the fields that authorities and leaves share."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, certificate_signing: bool) -> x509.KeyUsage:
    """Return the key usage: an authority signs certificates, a leaf signs handshakes; ECDSA keys do not encipher."""
    return x509.KeyUsage(
        digital_signature=not certificate_signing,
        key_cert_sign=certificate_signing,
        crl_sign=certificate_signing,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
