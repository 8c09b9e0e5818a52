"""Run one target under atheris: `python -m fuzz.hunt TARGET`, followed by libFuzzer's own options.

The code under test is imported under instrumentation, so it must not be imported earlier.
"""

import hashlib
import logging
import os
import random
import sys
import traceback

import atheris

from fuzz import catalogue, mutator

_INSTRUMENTED = ("allocation", "webhook", "scheduler", "cluster", "cli", "fuzz.targets")


def main() -> None:
    """Run until libFuzzer ends the process: when the time is over, or at the first bug."""
    _, name, *options = sys.argv
    logging.disable()
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        target = catalogue.load(name)

    def change(data: bytes, largest: int, seed: int) -> bytes:
        return mutator.mutate(data, largest, random.Random(seed), atheris.Mutate)  # noqa: S311 -- not a secret

    def one(data: bytes) -> None:
        try:
            target(data)
        except Exception:  # noqa: BLE001 -- any exception is a bug
            traceback.print_exc()
            path = catalogue.FOUND / name / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            print(f"the input was written to {path}", file=sys.stderr, flush=True)
            os._exit(1)

    atheris.Setup([sys.argv[0], *options], one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
