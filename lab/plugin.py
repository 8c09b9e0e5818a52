"""`kubectl gpu` in the user's shell: the plugin next to the lab's kubectl, and the line that sets up the PATH."""

from __future__ import annotations

import os
import shlex
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.files import link

if TYPE_CHECKING:
    from lab.layout import Layout

# kubectl finds its plugins and their completion programs by name on the PATH.
PROGRAMS = ("kubectl-gpu", "kubectl_complete-gpu")


def link_programs(layout: Layout) -> None:
    """Link the plugin's programs next to the lab's kubectl, so that one folder on the PATH is enough.

    Raises:
        LabError: the package is not installed.
    """
    scripts = Path(sysconfig.get_path("scripts"))
    for name in PROGRAMS:
        program = scripts / name
        if not os.access(program, os.X_OK):
            raise LabError(str(program), why="it does not exist", remedy="install the package: `make .venv/.installed`")
        link(layout.bin / name, program)


def shell_line(layout: Layout) -> str:
    """Return the line that makes `kubectl` and `kubectl gpu` use this lab, for sh, bash, zsh and fish."""
    return f'export KUBECONFIG={shlex.quote(str(layout.kubeconfig))} PATH={shlex.quote(str(layout.bin))}:"$PATH"'
