"""`python -m chaos`: inject faults into a real cluster under load, and check that no promise is broken.

`python -m chaos soak` injects no faults: it checks that no process grows.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from chaos.run import chaos
from chaos.settings import Settings
from chaos.soak import soak
from lab.errors import LabError


def main(argv: list[str] | None = None) -> int:
    """Return 0 on success, 1 if a promise was broken or a process grew, 2 if the cluster could not be started."""
    command, config = _read(argv)
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:7.1f} s  {line}", flush=True)

    try:
        is_well = asyncio.run((_chaos if command == "faults" else _soak)(config, report))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: the cluster was stopped and nothing was checked", file=sys.stderr)
        return 130
    return int(not is_well)


async def _chaos(config: Settings, report: Callable[[str], None]) -> bool:
    summary = await chaos(config, report=report)
    summary.write(config.results / "chaos.jsonl")
    _print(summary.table(), summary.violations)
    for name in summary.missing:
        print(f"NOT INJECTED {name}: it found nothing to disturb; the logs say what ran")
    print(f"violations = {len(summary.violations)}; logs are in {config.results}")
    return summary.is_well


async def _soak(config: Settings, report: Callable[[str], None]) -> bool:
    soaked = await soak(config, report=report)
    _print(soaked.table(), soaked.violations)
    print(f"samples and logs are in {config.results}")
    return soaked.is_well


def _print(table: str, violations: Iterable[object]) -> None:
    print(table)
    for each in violations:
        print(f"VIOLATION {each}")


def _read(argv: list[str] | None) -> tuple[str, Settings]:
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Inject faults into a real cluster under load, and check that no promise is broken.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("faults", "soak"),
        default="faults",
        help="faults (the default), or soak: load without faults, to find processes that grow",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=default.minutes,
        help="least duration; every fault is injected once in any case (%(default)g)",
    )
    parser.add_argument(
        "--seed", type=int, default=default.seed, help="seed of the order of faults and pods (%(default)s)"
    )
    parser.add_argument(
        "--base-port",
        type=int,
        default=default.base_port,
        metavar="N",
        help="first of the cluster's ports (%(default)s)",
    )
    parser.add_argument(
        "--pods", type=int, default=default.pods, metavar="N", help="continue until N pods were created"
    )
    parser.add_argument(
        "--rate", type=float, default=default.rate, metavar="N", help="pods created per second (%(default)g)"
    )
    parser.add_argument(
        "--gangs",
        type=float,
        default=default.gangs,
        metavar="P",
        help="share of the creations that are those of a gang (%(default)g)",
    )
    parser.add_argument(
        "--claims",
        type=float,
        default=default.claims,
        metavar="P",
        help="share of the pods that get their cards by a GpuClaim (%(default)g)",
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=default.kills,
        metavar="N",
        help="afterwards, kill a scheduler N times while it binds",
    )
    parser.add_argument(
        "--lost-bindings",
        type=int,
        default=default.lost_bindings,
        metavar="N",
        help="afterwards, drop responses to Bindings until N were dropped",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=default.patience_seconds,
        metavar="S",
        dest="patience_seconds",
        help="longest time that a schedulable pod may wait (%(default)g)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=default.results,
        metavar="DIR",
        help="directory for logs and figures (%(default)s)",
    )
    arguments = vars(parser.parse_args(argv))
    return arguments.pop("command"), Settings(**arguments)


if __name__ == "__main__":
    sys.exit(main())
