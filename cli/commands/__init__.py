"""The commands: a file here for each, which says what it is for and takes its flags; `cli/<same name>.py` answers.

A file is found by being here. It has a constant `COMMAND`, and reads nothing but the standard library, because all of
them are read for every command line. An argument's metavar says how it is completed, see `cli.completions`.
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
        summary: what it is for, in a line without a full stop.
        description: the same for its own help.
        add: takes its arguments; what `args` of every command has stands in `cli.arguments`.
        outputs: what `-o` may be, the default first; empty where there is no `-o`.
        asks_cluster: whether `run` wants a session, and kubectl's flags choose the cluster.
    """

    summary: str
    description: str
    add: Callable[[argparse.ArgumentParser], None]
    outputs: tuple[str, ...] = ()
    asks_cluster: bool = True


def every() -> Iterable[tuple[str, Command]]:
    """Answer each command with the word that people type."""
    for found in sorted(iter_modules(__path__), key=lambda module: module.name):
        module: Any = import_module(f"{__name__}.{found.name}")
        yield found.name.replace("_", "-"), module.COMMAND
