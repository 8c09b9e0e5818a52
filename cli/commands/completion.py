"""The command line of `kubectl gpu completion`."""

import argparse

from cli.commands import Command

_DESCRIPTION = """\
Prints a script that completes the command line of kubectl-gpu in a shell:

  bash:  source <(kubectl gpu completion bash)
  zsh:   source <(kubectl gpu completion zsh)
  fish:  kubectl gpu completion fish | source

If kubectl's own completion is loaded, it also completes 'kubectl gpu', without
this script: kubectl runs the executable kubectl_complete-gpu, which pipx
installs together with kubectl-gpu. After an installation by krew, write it
yourself: a shell script with the line  exec kubectl-gpu __complete "$@"
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


COMMAND = Command(
    module="cli.completion.scripts",
    summary="print a script that completes command lines in a shell",
    description=_DESCRIPTION,
    add=_add,
    asks_cluster=False,
)
