"""The executables of the processes, which the wheel installs together with `kubectl gpu`.

Without the extra `server` the packages that the processes import are missing: each then says what to install.
"""

import sys
from functools import partial
from importlib import import_module

from cli.errors import MissingPackageError


def _start(module: str) -> None:
    """Run the process of a package; exit with code 1 and the next step if a package that it imports is missing."""
    try:
        process = import_module(f"{module}.__main__")
    except ModuleNotFoundError as error:
        sys.exit(f"tranche-{module}: {MissingPackageError(error, program='tranche')}")
    process.main()


webhook = partial(_start, "webhook")
scheduler = partial(_start, "scheduler")
agent = partial(_start, "agent")
certs = partial(_start, "certs")
