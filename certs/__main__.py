"""`python -m certs`: the webhook's authorities, for people and for installation jobs."""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from allocation.names import SYSTEM_NAMESPACE
from certs import authority_secret, ca_bundle, overview
from certs.authority_secret import SECRET, BrokenAuthorityError
from certs.keeper import Keeper
from certs.rotate import RotationError, rotate
from certs.settings import CertsSettings, RotateSettings
from cluster import configuration
from cluster.api import Api
from cluster.configuration import Configuration
from cluster.connection import connect
from cluster.errors import ClusterError


class _Command(msgspec.Struct, frozen=True):
    run: Callable[[Api, Any], Awaitable[None]]
    settings: type[CertsSettings]
    description: str


def main() -> None:
    """Run one command; exit code 1 says that it failed, with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m certs",
        description="\n".join(f"{name}: {command.description}" for name, command in _COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see python -m certs COMMAND --help")
    arguments = parser.parse_args()
    command = _COMMANDS[arguments.command]
    told = configuration.load(
        arguments.options,
        section="certs",
        settings=command.settings,
        prog=f"python -m certs {arguments.command}",
        description=command.description,
    )
    try:
        asyncio.run(_run(command, told))
    except (BrokenAuthorityError, RotationError, ClusterError) as error:
        sys.exit(f"python -m certs {arguments.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


async def _run(command: _Command, told: Configuration[CertsSettings]) -> None:
    async with connect(kubeconfig=told.cluster.kubeconfig, context=told.cluster.context) as connection:
        await command.run(Api(connection), told.own)


async def _ensure(api: Api, settings: CertsSettings) -> None:
    name = settings.webhook_configuration
    kept = await Keeper(api, configuration=name, settle_seconds=settings.settle_seconds).tick(now=datetime.now(UTC))
    end = kept.authorities.signing.certificate.not_valid_after_utc
    print(f"authority: Secret {SYSTEM_NAMESPACE}/{SECRET}, until {end:%Y-%m-%d}")
    written = f"caBundle of {name}" in kept.wrote
    print(f"caBundle of MutatingWebhookConfiguration {name}: {'written' if written else 'was already right'}")


async def _show(api: Api, settings: CertsSettings) -> None:
    stored = await authority_secret.read(api, now=datetime.now(UTC))
    published = await ca_bundle.read(api, configuration=settings.webhook_configuration)
    print(overview.table(stored.authorities, published.bundles))


async def _rotate(api: Api, settings: RotateSettings) -> None:
    await rotate(api, settings=settings, report=lambda line: print(line, flush=True))


_COMMANDS = {
    "ensure": _Command(
        _ensure, CertsSettings, "create the authority if there is none, and publish it in the webhook configuration"
    ),
    "show": _Command(_show, CertsSettings, "print who signs, what is published, and until when; no secret is printed"),
    "rotate": _Command(
        _rotate,
        RotateSettings,
        "replace every certificate, with --ca the authority too, without a failed admission; ends with an admission"
        " that the API server believes. --probe HOST:PORT[,…] waits for each replica, --dry-run changes nothing. May be"
        " interrupted and run again at any time",
    ),
}


if __name__ == "__main__":
    main()
