"""The table of `python -m certs show`: the signing, announced, retired and published authorities."""

from collections.abc import Mapping

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tabulate import tabulate

from allocation.names import SYSTEM_NAMESPACE
from certs import ca_bundle
from certs.authorities import Authorities
from certs.authority_secret import SECRET

_HEADERS = ("WHERE", "ROLE", "SUBJECT", "EXPIRES", "TRUSTED UNTIL", "SHA-256 FINGERPRINT")


def table(authorities: Authorities, bundles: Mapping[str, bytes]) -> str:
    """Return a table with a row for each authority of the Secret and of each caBundle."""
    signing = authorities.signing.certificate
    announced = authorities.announced.certificate if authorities.announced is not None else None
    until = {each.certificate: each.until for each in authorities.retired}

    def row(where: str, certificate: x509.Certificate) -> tuple[str, ...]:
        if certificate == signing:
            role = "signing"
        elif certificate == announced:
            role = "announced"
        else:
            role = "retired" if certificate in until else "unknown"
        end = certificate.not_valid_after_utc
        return (
            where,
            role,
            certificate.subject.rfc4514_string(),
            f"{end:%Y-%m-%d %H:%M} UTC",
            f"{until.get(certificate, end):%Y-%m-%d %H:%M} UTC",
            certificate.fingerprint(hashes.SHA256()).hex(":"),
        )

    rows = [row(f"Secret {SYSTEM_NAMESPACE}/{SECRET}", each) for each in authorities.certificates]
    for name, bundle in bundles.items():
        where = f"caBundle of {name}"
        rows += [row(where, each) for each in ca_bundle.certificates(bundle)] or [(where, "none", "", "", "", "")]
    return tabulate(rows, headers=_HEADERS, tablefmt="plain")
