"""One target under atheris, in a process of its own: `python -m fuzz.hunt TARGET`, then libFuzzer's own options.

What is tested is imported under instrumentation, so nothing of it may be imported before.
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
    """Run until libFuzzer ends the process: after its time, or at the first defect."""
    _, name, *options = sys.argv
    logging.disable()
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        target = catalogue.load(name)

    def change(data: bytes, largest: int, seed: int) -> bytes:
        return mutator.mutate(data, largest, random.Random(seed), atheris.Mutate)  # noqa: S311 -- no secret

    def one(data: bytes) -> None:
        try:
            target(data)
        except Exception:  # noqa: BLE001 -- whatever it is, it is what was looked for
            traceback.print_exc()
            path = catalogue.FOUND / name / hashlib.sha256(data).hexdigest()[:16]
            path.write_bytes(data)
            print(f"the input is in {path}", file=sys.stderr, flush=True)
            os._exit(1)

    atheris.Setup([sys.argv[0], *options], one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
