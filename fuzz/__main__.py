"""`python -m fuzz`: every target under atheris for a while, and the HTTP API under schemathesis.

An input that breaks a target is written to `fuzz/found/TARGET/`: give it a name there, and the tests keep it.
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

_OPENAPI = "openapi"
_NAMES = (*catalogue.NAMES, _OPENAPI)
_CORPUS = Path(".fuzz")
_SLOWEST_INPUT_SECONDS = 20
_MOST_MEMORY_MIB = 2048
_LARGEST_INPUT = 64 * 1024
_COUNT = re.compile(r"^(?:stat::number_of_executed_units: +(\d+)| +(\d+) generated)", re.MULTILINE)


class _Outcome(msgspec.Struct, frozen=True):
    """How a target fared; `output` is what it said, of use where it failed."""

    name: str
    failed: bool
    seconds: float
    inputs: str
    output: str


def main() -> int:
    """Answer 0 where nothing broke, 1 where something did."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"which: {', '.join(_NAMES)}; default all")
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="for each target (default 600)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="targets at once")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in _NAMES]
    if unknown:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(_NAMES)}")
    if arguments.seconds < 1 or arguments.jobs < 1:
        parser.error("--seconds and --jobs are at least 1")
    failed = False
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for outcome in pool.map(lambda name: _run(name, arguments.seconds), arguments.targets or _NAMES):
            failed |= outcome.failed
            told = "FAILED" if outcome.failed else "ok"
            print(f"{outcome.name:<12} {told:<6} {outcome.inputs:>10} inputs in {outcome.seconds:.0f} s", flush=True)
            if outcome.failed:
                print(outcome.output, file=sys.stderr, flush=True)
    return int(failed)


def _run(name: str, seconds: int) -> _Outcome:
    begin = time.monotonic()
    command = [sys.executable, "-m", "fuzz.openapi", str(seconds)] if name == _OPENAPI else _hunt(name, seconds)
    with tempfile.TemporaryFile("w+") as said:
        code = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False).returncode
        said.seek(0)
        text = said.read()
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
