"""`python -m certs`: manages the webhook's authorities, for administrators and installation jobs."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from certs import authority_secret, ca_bundle, status_table
from certs.authority_reconciler import AuthorityReconciler
from certs.authority_secret import SECRET, BrokenAuthorityError
from certs.rotate import RotationError, rotate
from certs.settings import CertsSettings, RotateSettings
from cluster import configuration
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.connect import connect
from cluster.errors import ClusterError


class _Command(msgspec.Struct, frozen=True):
    run: Callable[[Api, Any], Awaitable[None]]
    settings: type[CertsSettings]
    description: str


def main() -> None:
    """Run one command; exit with code 1 and the reason on standard error if it fails."""
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        description="\n".join(f"{name}: {command.description}" for name, command in _COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see python -m certs COMMAND --help")
    arguments = parser.parse_args()
    command = _COMMANDS[arguments.command]
    loaded = configuration.load(
        arguments.options,
        section="certs",
        settings=command.settings,
        prog=f"python -m certs {arguments.command}",
        description=command.description,
    )
    try:
        asyncio.run(_run(command, loaded))
    except (BrokenAuthorityError, RotationError, ClusterError) as error:
        sys.exit(f"python -m certs {arguments.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


async def _run(command: _Command, loaded: Configuration[CertsSettings]) -> None:
    cluster = loaded.cluster
    async with connect(program="tranche-certs", kubeconfig=cluster.kubeconfig, context=cluster.context) as connection:
        await command.run(Api(connection), loaded.own)


async def _ensure(api: Api, settings: CertsSettings) -> None:
    name = settings.webhook_configuration
    reconciler = AuthorityReconciler(api, configuration=name, settle_seconds=settings.settle_seconds)
    reconciled = await reconciler.reconcile(now=datetime.now(UTC))
    end = reconciled.authorities.signing.certificate.not_valid_after_utc
    print(f"authority: Secret {SYSTEM_NAMESPACE}/{SECRET}, valid until {end:%Y-%m-%d}")
    is_written = f"caBundle of {name}" in reconciled.wrote
    print(f"caBundle of MutatingWebhookConfiguration {name}: {'written' if is_written else 'already up to date'}")


async def _show(api: Api, settings: CertsSettings) -> None:
    stored = await authority_secret.read(api, now=datetime.now(UTC))
    published = await ca_bundle.read(api, configuration=settings.webhook_configuration)
    print(status_table.table(stored.authorities, published.bundles))


async def _rotate(api: Api, settings: RotateSettings) -> None:
    await rotate(api, settings=settings, report=lambda line: print(line, flush=True))


_COMMANDS = {
    "ensure": _Command(
        _ensure, CertsSettings, "create the authority if it does not exist, and publish it in the webhook configuration"
    ),
    "show": _Command(
        _show,
        CertsSettings,
        "print the signing and the published authorities and their expiry, but no private key",
    ),
    "rotate": _Command(
        _rotate,
        RotateSettings,
        "replace every certificate, with --ca also the authority, without a failed admission; at the end the API server"
        " verifies the webhook in an admission request. --probe HOST:PORT[,…] waits for each replica, --dry-run changes"
        " nothing. The command can be interrupted and run again at any time",
    ),
}


if __name__ == "__main__":
    main()
