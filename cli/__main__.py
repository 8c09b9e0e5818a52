"""The entry point of `kubectl gpu`; kubectl runs it as `kubectl-gpu`."""

import sys
from collections.abc import Sequence
from typing import Final

from cli import arguments, streams

COMPLETE: Final = "__complete"
"""The word before a line to complete; an installation by krew has no other executable for that."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    streams.prepare()
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == [COMPLETE]:
        from cli.completion import complete  # noqa: PLC0415 -- commands do not complete

        return complete.main(words[1:])
    parsed = arguments.parse(words)
    from cli.process import run  # noqa: PLC0415 -- help and usage errors do not wait for the API client

    return run(parsed)


if __name__ == "__main__":
    sys.exit(main())
