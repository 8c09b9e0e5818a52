"""`python -m lab`: a local cluster in one command."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from lab import cluster, components, demos, doctor, evidence, verify
from lab.errors import LabError
from lab.layout import DEFAULT_BASE_PORT, Layout, remembered
from lab.lock import exclusive
from lab.steps import step

WALK: dict[str, Callable[[Layout], Iterator[str]]] = {
    "verify": verify.verify,
    "demo-fractional": demos.fractional,
    "demo-pending": demos.pending,
    "demo-placement": demos.placement,
    "demo-static": demos.static,
    "demo-environment": demos.inspect,
    "top": demos.who_has_what,
    "evidence": evidence.record,
    "clean": demos.clean,
}
READ_ONLY = ("verify", "top", "evidence")
DEMO = (*(name for name in WALK if name.startswith("demo-")), "top", "evidence", "clean")


def main(argv: list[str] | None = None) -> int:
    """Run one command; 0 on success, 1 on an error that is explained, 130 when interrupted."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        match arguments.command:
            case "up":
                return _up(_layout(arguments), with_real_node=not arguments.no_real_node)
            case "down":
                return _down(_layout(arguments))
            case "demo":
                return _demo(_layout(arguments), with_real_node=not arguments.no_real_node)
            case "doctor":
                return _doctor(_layout(arguments))
            case "status":
                return _status(_layout(arguments))
            case None | "help":
                parser.print_help()
                return 0
            case command:
                return _walk(_layout(arguments), command)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: `python -m lab down` removes what was started", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab", description="A real Kubernetes on this machine, without Docker."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--root", type=Path, metavar="FOLDER", help="the lab's folder (LAB_ROOT; .lab)")
    common.add_argument("--base-port", type=int, metavar="N", help=f"first port (LAB_BASE_PORT; {DEFAULT_BASE_PORT})")
    commands = parser.add_subparsers(dest="command", metavar="command")
    up = commands.add_parser("up", parents=[common], help="start the cluster, or what of it does not run")
    demo = commands.add_parser("demo", parents=[common], help="up, every demo, down; fails unless all is as expected")
    for parser_of_node in (up, demo):
        parser_of_node.add_argument("--no-real-node", action="store_true", help="leave out kubelet and containerd")
    for name, does in WALK.items():
        commands.add_parser(name, parents=[common], help=(does.__doc__ or "").partition("\n")[0])
    commands.add_parser("status", parents=[common], help="which of our processes run")
    commands.add_parser("down", parents=[common], help="stop everything and remove all but logs and evidence")
    commands.add_parser("doctor", parents=[common], help="check what the lab needs; changes nothing")
    commands.add_parser("help", help="show this text")
    return parser


def _layout(arguments: argparse.Namespace) -> Layout:
    """From the flags, else the environment, else the lab that was started in this folder, else the default.

    Raises:
        LabError: the lab in this folder was started with another base port.
    """
    root = (arguments.root or Path(os.environ.get("LAB_ROOT") or ".lab")).resolve()
    environment = os.environ.get("LAB_BASE_PORT", "")
    if environment and not environment.isdecimal():
        raise LabError(f"LAB_BASE_PORT={environment}", why="it is not a number", remedy=f"set {DEFAULT_BASE_PORT}")
    asked: int | None = arguments.base_port
    if asked is None and environment:
        asked = int(environment)
    started = remembered(root)
    if started and asked not in (None, started.base_port):
        raise LabError(
            f"lab in {root}",
            why=f"it was started with base port {started.base_port}, not {asked}",
            remedy=f"run `python -m lab down --root {root}` first, or pass another --root",
        )
    return started or Layout(root=root, base_port=DEFAULT_BASE_PORT if asked is None else asked)


def _up(layout: Layout, *, with_real_node: bool) -> int:
    with exclusive(layout.lock, holder="`lab up`"):
        cluster.up(layout, with_real_node=with_real_node)
    print(f"\nexport KUBECONFIG={layout.kubeconfig} PATH={layout.bin}:$PATH")
    return 0


def _down(layout: Layout) -> int:
    with exclusive(layout.lock, holder="`lab down`"), step("down") as outcome:
        left = cluster.down(layout)
        outcome.append(
            f"left alone, another lab's: {', '.join(left)}" if left else "nothing is left but logs and evidence"
        )
    return 0


def _demo(layout: Layout, *, with_real_node: bool) -> int:
    began = time.monotonic()
    with exclusive(layout.lock, holder="`lab demo`"):
        try:
            cluster.up(layout, with_real_node=with_real_node)
            for name in DEMO:
                _show(layout, name)
        finally:
            with step("down") as outcome:
                cluster.down(layout)
                outcome.append("nothing is left but logs and evidence")
    print(f"\nevery result was as expected, in {time.monotonic() - began:.0f} s")
    return 0


def _walk(layout: Layout, command: str) -> int:
    # Who only reads may do so while another command is at work; the evidence runs `verify` itself.
    with exclusive(layout.lock, holder=f"`lab {command}`") if command not in READ_ONLY else nullcontext():
        _show(layout, command)
    return 0


def _show(layout: Layout, command: str) -> None:
    if not layout.is_remembered:
        raise LabError(f"lab in {layout.root}", why="it is not up", remedy="run `make up`")
    with step(command):
        if command.startswith("demo-"):
            # Each demo stands by itself, so each needs the label.
            print("\n".join(f"  {line}" for line in demos.opt_in(layout)))
        for line in WALK[command](layout):
            print(f"  {line}", flush=True)


def _status(layout: Layout) -> int:
    rows = components.status(layout) if layout.is_remembered else []
    print("\n".join(f"{name:<16} {state}" for name, state in rows) or f"the lab in {layout.root} is not up")
    return 0 if rows and all("not" not in state for _, state in rows) else 1


def _doctor(layout: Layout) -> int:
    findings = doctor.examine(layout)
    print("\n".join(map(str, findings)))
    return 0 if doctor.is_healthy(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
