"""`python -m chaos`: faults done to a real cluster under load, and a checker that says whether anything was lost.

`python -m chaos soak` does no faults: it looks whether any process of ours grows.
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
    """Answer 0 where all was well, 1 where something was broken or grew, 2 where the cluster could not be had."""
    what, told = _read(argv)
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:7.1f} s  {line}", flush=True)

    try:
        is_well = asyncio.run((_chaos if what == "faults" else _soak)(told, report))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted: the cluster is taken down, nothing was judged", file=sys.stderr)
        return 130
    return int(not is_well)


async def _chaos(told: Settings, report: Callable[[str], None]) -> bool:
    summary = await chaos(told, report=report)
    summary.write(told.results / "chaos.jsonl")
    _print(summary.table(), summary.violations)
    print(f"violations = {len(summary.violations)}; logs are in {told.results}")
    return not summary.violations


async def _soak(told: Settings, report: Callable[[str], None]) -> bool:
    soaked = await soak(told, report=report)
    _print(soaked.table(), soaked.violations)
    print(f"samples and logs are in {told.results}")
    return soaked.is_well


def _print(table: str, violations: Iterable[object]) -> None:
    print(table)
    for each in violations:
        print(f"VIOLATION {each}")


def _read(argv: list[str] | None) -> tuple[str, Settings]:
    default = Settings()
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Faults on a real cluster under load.")
    parser.add_argument("what", nargs="?", choices=("faults", "soak"), default="faults", help="default: faults")
    parser.add_argument("--minutes", type=float, default=default.minutes, help="how long (%(default)g)")
    parser.add_argument("--seed", type=int, default=default.seed, help="which faults and pods come when (%(default)s)")
    parser.add_argument(
        "--base-port", type=int, default=default.base_port, metavar="N", help="first port (%(default)s)"
    )
    parser.add_argument("--pods", type=int, default=default.pods, metavar="N", help="go on until so many were created")
    parser.add_argument("--rate", type=float, default=default.rate, metavar="N", help="pods a second (%(default)g)")
    parser.add_argument(
        "--kills", type=int, default=default.kills, metavar="N", help="afterwards, kill so many schedulers that bind"
    )
    parser.add_argument(
        "--lost-bindings",
        type=int,
        default=default.lost_bindings,
        metavar="N",
        help="afterwards, lose answers to Bindings until so many were lost",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=default.patience_seconds,
        metavar="S",
        dest="patience_seconds",
        help="seconds that a pod may wait which fits all the time (%(default)g)",
    )
    parser.add_argument(
        "--results", type=Path, default=default.results, metavar="DIR", help="for logs and figures (%(default)s)"
    )
    arguments = vars(parser.parse_args(argv))
    return arguments.pop("what"), Settings(**arguments)


if __name__ == "__main__":
    sys.exit(main())
