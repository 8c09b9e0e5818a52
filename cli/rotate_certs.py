"""`kubectl gpu rotate-certs`: the same as `python -m certs rotate`, with kubectl's configuration."""

import argparse
import asyncio

import msgspec

from certs.authority_secret import BrokenAuthorityError
from certs.rotate import RotationError, rotate
from certs.settings import RotateSettings
from cli.errors import CommandError
from cli.kube.session import Session, live


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Rotate the certificates and print each step."""
    settings = {
        "ca": arguments.ca,
        "dry_run": arguments.dry_run,
        "probe": arguments.probe,
        "drop_old": arguments.drop_old,
        "settle_seconds": arguments.settle,
        "timeout_seconds": arguments.timeout,
    }
    try:
        asyncio.run(_rotate(session, msgspec.convert(settings, RotateSettings)))
    except (RotationError, BrokenAuthorityError, msgspec.ValidationError) as error:
        raise CommandError(str(error)) from None
    return 0


async def _rotate(session: Session, settings: RotateSettings) -> None:
    async with live(session.access) as api:
        await rotate(api, settings=settings, report=lambda line: print(line, flush=True))
