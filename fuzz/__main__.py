"""`python -m fuzz`: run each target under atheris, and the HTTP API under schemathesis.

An input that breaks a target is written to `fuzz/found/TARGET/`. Rename it there and commit it: the tests try it from
then on.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from fuzz import catalogue

_DESCRIPTION = (
    "Run each target under atheris, and the HTTP API under schemathesis."
    " An input that breaks a target is written to fuzz/found/TARGET/."
)
_OPENAPI = "openapi"
_NAMES = (*catalogue.NAMES, _OPENAPI)
_CORPUS = Path(".fuzz")
_SLOWEST_INPUT_SECONDS = 20
_MOST_MEMORY_MIB = 2048
_LARGEST_INPUT = 64 * 1024
_COUNT = re.compile(r"^(?:stat::number_of_executed_units: +(\d+)| +(\d+) generated)", re.MULTILINE)


class _Outcome(msgspec.Struct, frozen=True):
    """The result of one target; `output` is the output of its process."""

    name: str
    failed: bool
    seconds: float
    inputs: str
    output: str


def main() -> int:
    """Return 0 if no target broke, 1 if one did."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=_DESCRIPTION)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"one of {', '.join(_NAMES)}; all by default")
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="duration of each target (default 600)")
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of targets to run at once (default: the number of processors)",
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in _NAMES]
    if unknown:
        parser.error(f"unknown target {', '.join(unknown)}; the targets are {', '.join(_NAMES)}")
    if arguments.seconds < 1 or arguments.jobs < 1:
        parser.error("--seconds and --jobs must be at least 1")
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(lambda name: _run(name, arguments.seconds), arguments.targets or _NAMES):
            failed |= outcome.failed
            verdict = "FAILED" if outcome.failed else "ok"
            print(f"{outcome.name:<12} {verdict:<6} {outcome.inputs:>10} inputs in {outcome.seconds:.0f} s", flush=True)
            if outcome.failed:
                print(outcome.output, file=sys.stderr, flush=True)
    return int(failed)


def _run(name: str, seconds: int) -> _Outcome:
    begin = time.monotonic()
    command = [sys.executable, "-m", "fuzz.openapi", str(seconds)] if name == _OPENAPI else _hunt(name, seconds)
    with tempfile.TemporaryFile("w+") as captured:
        code = subprocess.run(command, stdout=captured, stderr=subprocess.STDOUT, check=False).returncode
        captured.seek(0)
        text = captured.read()
    count = _COUNT.search(text)
    inputs = count[1] or count[2] if count is not None else "?"
    output = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return _Outcome(name, code != 0, time.monotonic() - begin, inputs, output)


def _hunt(name: str, seconds: int) -> list[str]:
    corpus, found = _CORPUS / name, catalogue.FOUND / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    return [
        *(sys.executable, "-m", "fuzz.hunt", name),
        f"-max_total_time={seconds}",
        f"-timeout={_SLOWEST_INPUT_SECONDS}",
        f"-rss_limit_mb={_MOST_MEMORY_MIB}",
        f"-max_len={_LARGEST_INPUT}",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
        *map(str, (corpus, catalogue.SEEDS / name, found)),
    ]


if __name__ == "__main__":
    sys.exit(main())
