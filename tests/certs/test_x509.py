"""Authorities and leaves follow RFC 5280, and a strict TLS client accepts them."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509 as cx509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs import x509

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def authority() -> x509.KeyPair:
    """Return an authority that is valid for ten days."""
    return x509.new_authority("tests", lifetime=10 * DAY, now=NOW)


def serving(authority: x509.KeyPair, *, lifetime: timedelta = DAY, now: datetime = NOW) -> x509.KeyPair:
    """Return a server's leaf for a name and an address."""
    return x509.issue(
        authority,
        common_name="server",
        dns_names=["webhook.svc"],
        ip_addresses=["127.0.0.1"],
        lifetime=lifetime,
        now=now,
        server=True,
    )


def test_authority_may_sign_leaves_and_nothing_else(authority: x509.KeyPair) -> None:
    """An authority signs certificates, cannot create a further authority, and both extensions are critical."""
    constraints = authority.certificate.extensions.get_extension_for_class(cx509.BasicConstraints)
    usage = authority.certificate.extensions.get_extension_for_class(cx509.KeyUsage)
    assert (constraints.critical, constraints.value.ca, constraints.value.path_length) == (True, True, 0)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.digital_signature) == (True, True, False)


def test_leaf_is_signed_by_its_authority_and_names_it(authority: x509.KeyPair) -> None:
    """A leaf verifies against its authority, and its key identifier leads to the authority's."""
    leaf = serving(authority).certificate
    leaf.verify_directly_issued_by(authority.certificate)
    issuer = leaf.extensions.get_extension_for_class(cx509.AuthorityKeyIdentifier).value
    own = authority.certificate.extensions.get_extension_for_class(cx509.SubjectKeyIdentifier).value
    assert issuer.key_identifier == own.digest
    assert leaf.extensions.get_extension_for_class(cx509.BasicConstraints).value.ca is False


def test_leaf_uses_p256(authority: x509.KeyPair) -> None:
    """Keys are ECDSA P-256."""
    assert isinstance(serving(authority).key.curve, ec.SECP256R1)


def test_authority_is_backdated_by_an_hour(authority: x509.KeyPair) -> None:
    """A peer whose clock is up to an hour slow accepts a new authority."""
    assert authority.certificate.not_valid_before_utc == NOW - timedelta(hours=1)


def test_leaf_begins_with_its_authority(authority: x509.KeyPair) -> None:
    """A client that accepts the authority as valid accepts the leaf, even if the issuer's clock was fast."""
    leaf = serving(authority, now=NOW + 5 * DAY)
    assert leaf.certificate.not_valid_before_utc == authority.certificate.not_valid_before_utc


def test_leaf_never_outlives_its_authority(authority: x509.KeyPair) -> None:
    """A longer lifetime is cut at the authority's end."""
    leaf = serving(authority, lifetime=20 * DAY).certificate
    assert leaf.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_expired_authority_issues_nothing(authority: x509.KeyPair) -> None:
    """The error names the expired authority and the remedy."""
    with pytest.raises(ValueError, match=r"CN=tests expired on 2030-01-11 .* create a new one"):
        serving(authority, now=NOW + 11 * DAY)


@pytest.mark.parametrize(
    ("server", "client", "usages"),
    [
        (True, False, [ExtendedKeyUsageOID.SERVER_AUTH]),
        (False, True, [ExtendedKeyUsageOID.CLIENT_AUTH]),
        (True, True, [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
    ],
)
def test_leaf_has_exactly_the_requested_usages(
    authority: x509.KeyPair, *, server: bool, client: bool, usages: list[cx509.ObjectIdentifier]
) -> None:
    """Extended key usage is exactly server, client, or both."""
    leaf = x509.issue(authority, common_name="x", lifetime=DAY, now=NOW, server=server, client=client)
    assert list(leaf.certificate.extensions.get_extension_for_class(cx509.ExtendedKeyUsage).value) == usages


def test_leaf_without_usage_is_refused(authority: x509.KeyPair) -> None:
    """A leaf without any usage is a mistake of the caller."""
    with pytest.raises(ValueError, match="certificate x: choose server, client or both"):
        x509.issue(authority, common_name="x", lifetime=DAY, now=NOW)


def test_client_certificate_carries_user_and_groups(authority: x509.KeyPair) -> None:
    """Kubernetes reads the user from the common name and the groups from the organizations."""
    leaf = x509.issue(
        authority,
        common_name="system:node:n1",
        organizations=["system:nodes", "more"],
        lifetime=DAY,
        now=NOW,
        client=True,
    )
    subject = leaf.certificate.subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["system:node:n1"]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [name.value for name in groups] == ["system:nodes", "more"]
    assert not [extension for extension in leaf.certificate.extensions if extension.oid.dotted_string == "2.5.29.17"]


def test_key_pair_survives_a_pem_round_trip(authority: x509.KeyPair) -> None:
    """A pair that is encoded as PEM decodes to the same pair."""
    again = x509.KeyPair.from_pem(certificate_pem=authority.certificate_pem, key_pem=authority.key_pem)
    assert again.certificate == authority.certificate
    assert again.key_pem == authority.key_pem


def test_key_of_another_certificate_is_refused(authority: x509.KeyPair) -> None:
    """A certificate with the key of another is refused before it is served."""
    with pytest.raises(ValueError, match="does not belong to the certificate CN=tests"):
        x509.KeyPair.from_pem(certificate_pem=authority.certificate_pem, key_pem=serving(authority).key_pem)


def test_error_for_an_rsa_key_names_the_expected_kind(authority: x509.KeyPair) -> None:
    """The error names the kind of key that is expected."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(ValueError, match="use ECDSA P-256"):
        x509.KeyPair.from_pem(certificate_pem=authority.certificate_pem, key_pem=key_pem)


def test_strict_tls_client_accepts_the_leaf(tmp_path: Path) -> None:
    """A handshake succeeds with strict verification (RFC 5280), by name as well as by address."""
    now = datetime.now(tz=UTC)
    authority = x509.new_authority("handshake", lifetime=DAY, now=now)
    leaf = serving(authority, now=now)
    (tmp_path / "pem").write_bytes(leaf.certificate_pem + leaf.key_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pem")
    client = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    for name in ("webhook.svc", "127.0.0.1"):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(10)
            theirs.settimeout(10)
            thread = threading.Thread(target=lambda end=theirs: server.wrap_socket(end, server_side=True).close())
            thread.start()
            with client.wrap_socket(ours, server_hostname=name) as connection:
                assert connection.version() == "TLSv1.3"
            thread.join(10)
