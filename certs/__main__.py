"""`python -m certs`: the webhook's authority, for people and for installation jobs."""

import argparse
import asyncio
import sys
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from tabulate import tabulate

from allocation.names import SYSTEM_NAMESPACE
from certs import ca_bundle
from certs.authority import SECRET, BrokenAuthorityError, ensure_authority, read_authority
from certs.settings import CertsSettings
from cluster import configuration
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.connection import connect
from cluster.errors import ClusterError

_COMMANDS = {
    "ensure": "create the authority if there is none, and publish it in the webhook configuration",
    "show": "print who signs, what is published, and until when; no secret is printed",
}


def main() -> None:
    """Run one command; exit code 1 says that it failed, with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        description="\n".join(f"{name}: {text}" for name, text in _COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see python -m certs COMMAND --help")
    arguments = parser.parse_args()
    told = configuration.load(
        arguments.options,
        section="certs",
        settings=CertsSettings,
        prog=f"python -m certs {arguments.command}",
        description=_COMMANDS[arguments.command],
    )
    run = {"ensure": _ensure, "show": _show}[arguments.command]
    try:
        asyncio.run(run(told))
    except (BrokenAuthorityError, ClusterError) as error:
        sys.exit(f"python -m certs {arguments.command}: {error}")


async def _ensure(told: Configuration[CertsSettings]) -> None:
    name = told.own.webhook_configuration
    async with connect(kubeconfig=told.cluster.kubeconfig, context=told.cluster.context) as connection:
        api = Api(connection)
        authority = await ensure_authority(api, now=datetime.now(UTC))
        changed = await ca_bundle.publish(api, bundle=authority.certificate_pem, configuration=name)
    print(f"authority: Secret {SYSTEM_NAMESPACE}/{SECRET}, until {authority.certificate.not_valid_after_utc:%Y-%m-%d}")
    print(f"caBundle of MutatingWebhookConfiguration {name}: {'written' if changed else 'was already right'}")


async def _show(told: Configuration[CertsSettings]) -> None:
    name = told.own.webhook_configuration
    async with connect(kubeconfig=told.cluster.kubeconfig, context=told.cluster.context) as connection:
        api = Api(connection)
        authority = await read_authority(api, now=datetime.now(UTC))
        bundles = await ca_bundle.published(api, configuration=name)
    rows = [_row(f"Secret {SYSTEM_NAMESPACE}/{SECRET}", authority.certificate)]
    for webhook, bundle in bundles.items():
        where = f"caBundle of {webhook}"
        rows += [_row(where, certificate) for certificate in _certificates(bundle)] or [(where, "none", "", "")]
    print(tabulate(rows, headers=("WHERE", "SUBJECT", "EXPIRES", "SHA-256 FINGERPRINT"), tablefmt="plain"))


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []


def _row(where: str, certificate: x509.Certificate) -> tuple[str, str, str, str]:
    return (
        where,
        certificate.subject.rfc4514_string(),
        f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC",
        certificate.fingerprint(hashes.SHA256()).hex(":"),
    )


if __name__ == "__main__":
    main()
