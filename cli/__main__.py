"""`kubectl gpu`: the entry of the plugin; kubectl finds it as `kubectl-gpu`."""

import sys
from collections.abc import Sequence

from cli import arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; answer the exit code."""
    parsed = arguments.parse(argv)
    from cli.process import run  # noqa: PLC0415 -- help and mistakes do not wait for the clients of the API

    return run(parsed)


if __name__ == "__main__":
    sys.exit(main())
