"""The entry point of `kubectl gpu`; kubectl runs it as `kubectl-gpu`."""

import sys
from collections.abc import Sequence

from cli import arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parsed = arguments.parse(argv)
    from cli.process import run  # noqa: PLC0415 -- help and usage errors do not wait for the API client

    return run(parsed)


if __name__ == "__main__":
    sys.exit(main())
