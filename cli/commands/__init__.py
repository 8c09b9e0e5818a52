"""The commands. Each file declares the flags and the help of one command, and the module that runs it.

Every file of this folder is a command. It has a constant `COMMAND`, and imports only the standard library and other
light modules, because every command line loads all of them. An argument's metavar determines its completion, see
`cli.completion.complete_cluster`.
"""

import argparse
from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final, NamedTuple

TABLE: Final = "table"


class Command(NamedTuple):
    """One command.

    Attributes:
        module: the module with the function `run`.
        summary: the purpose, in one line without a full stop.
        description: the text of `--help`.
        add: adds the command's own arguments; `cli.arguments` adds the common ones.
        outputs: the values of `-o`, the default first; empty for a command without `-o`.
        asks_cluster: whether `run` takes a session, so that the command accepts kubectl's flags.
        reads_configuration: whether a command without a session reads the installed configuration. It accepts kubectl's
            flags except `--as`, which such a command defines itself.
    """

    module: str
    summary: str
    description: str
    add: Callable[[argparse.ArgumentParser], None]
    outputs: tuple[str, ...] = ()
    asks_cluster: bool = True
    reads_configuration: bool = False


def every() -> Iterable[tuple[str, Command]]:
    """Return each command with its name on the command line."""
    for entry in sorted(iter_modules(__path__), key=lambda module: module.name):
        module: Any = import_module(f"{__name__}.{entry.name}")
        yield entry.name.replace("_", "-"), module.COMMAND
