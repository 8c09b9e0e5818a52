"""`python -m chaos`: faults done to a real cluster under load, and a checker that says whether anything was lost."""

import argparse
import asyncio
import sys
import time
from pathlib import Path

from chaos.run import chaos
from chaos.settings import Settings
from lab.errors import LabError


def main(argv: list[str] | None = None) -> int:
    """Answer 0 where nothing was broken, 1 where something was, 2 where the cluster could not be had."""
    told = _read(argv)
    begin = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - begin:7.1f} s  {line}", flush=True)

    try:
        summary = asyncio.run(chaos(told, report=report))
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    summary.write(told.results / "chaos.jsonl")
    print(summary.table())
    for each in summary.violations:
        print(f"VIOLATION {each}")
    print(f"violations = {len(summary.violations)}; logs are in {told.results}")
    return int(bool(summary.violations))


def _read(argv: list[str] | None) -> Settings:
    default = Settings()
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=default.minutes, help="how long faults are done (%(default)g)")
    parser.add_argument("--seed", type=int, default=default.seed, help="which faults come when (%(default)s)")
    parser.add_argument(
        "--base-port", type=int, default=default.base_port, metavar="N", help="first port (%(default)s)"
    )
    parser.add_argument("--pods", type=int, default=default.pods, metavar="N", help="go on until so many were created")
    parser.add_argument("--rate", type=float, default=default.rate, metavar="N", help="pods a second (%(default)g)")
    parser.add_argument(
        "--kills", type=int, default=default.kills, metavar="N", help="then kill schedulers that bind, until so many"
    )
    parser.add_argument(
        "--lost-bindings", type=int, default=default.lost_bindings, metavar="N", help="and lose so many answers"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=default.patience_seconds,
        metavar="S",
        dest="patience_seconds",
        help="seconds that a pod may wait which fits all the time (%(default)g)",
    )
    parser.add_argument("--results", type=Path, default=default.results, metavar="DIR", help="for logs and figures")
    return Settings(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
