"""The command line of `kubectl gpu env`."""

import argparse

from cli.commands import TABLE, Command

_DESCRIPTION = """\
Shows the GPU variables of a pod's containers as the kubelet resolves them.
Each variable refers to an annotation that the scheduler writes when it binds
the pod; before that the variable is empty. With a workload, such as deploy/web,
the variables of all its pods are shown.
"""


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="a pod, or a workload such as deploy/web, whose pods are shown")
    parser.add_argument("-c", "--container", default="", metavar="CONTAINER", help="show only this container")


COMMAND = Command(
    module="cli.env",
    summary="show the GPU variables of a pod's containers",
    description=_DESCRIPTION,
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
