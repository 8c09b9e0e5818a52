"""The command line of `kubectl gpu env`."""

import argparse

from cli.commands import TABLE, Command


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="the pod's name")
    parser.add_argument("-c", "--container", default="", metavar="NAME", help="only this container")


COMMAND = Command(
    summary="the GPU variables of a pod's containers",
    description="Shows the GPU variables of a pod's containers as the kubelet resolves them: each refers to an "
    "annotation that is written together with the pod's node, and is empty before that.",
    add=_add,
    outputs=(TABLE, "wide", "json", "yaml"),
)
