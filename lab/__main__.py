"""`python -m lab`: a local cluster in one command."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from allocation.names import SYSTEM_NAMESPACE
from lab import base_port, cluster, components, demos, doctor, evidence, fleet, helm_installation, plugin, verify
from lab.errors import LabError
from lab.layout import DEFAULT_BASE_PORT, Layout
from lab.lock import exclusive
from lab.steps import step

COMMANDS: dict[str, Callable[[Layout], Iterator[str]]] = {
    "verify": verify.verify,
    "demo-fractional": demos.fractional,
    "demo-pending": demos.pending,
    "demo-placement": demos.placement,
    "demo-claim": demos.claim,
    "demo-static": demos.static,
    "demo-environment": demos.containers,
    "top": demos.cards,
    "evidence": evidence.record,
    "clean": demos.clean,
}
READ_ONLY = ("verify", "top", "evidence")
DEMO = (*(name for name in COMMANDS if name.startswith("demo-")), "top", "evidence", "clean")


def main(argv: list[str] | None = None) -> int:
    """Run one command. Return 0 on success, 1 after an error message, 130 on an interrupt."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        match arguments.command:
            case "up":
                return _up(arguments)
            case "install":
                return _install(arguments)
            case "down":
                return _down(_layout(arguments))
            case "demo":
                return _demo(arguments)
            case "doctor":
                return _doctor(_layout(arguments), asked=arguments.base_port)
            case "status":
                return _status(_layout(arguments))
            case None | "help":
                parser.print_help()
                return 0
            case command:
                return _run(_layout(arguments), command)
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; run `make down` to remove what was started", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab", description="A real Kubernetes on this machine, without Docker."
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--root", type=Path, metavar="FOLDER", help="the lab's folder (LAB_ROOT; .lab)")
    common.add_argument(
        "--base-port",
        type=int,
        metavar="N",
        help=f"first port of a new lab (LAB_BASE_PORT; {DEFAULT_BASE_PORT}, or the first block of free ports)",
    )
    commands = parser.add_subparsers(dest="command", metavar="command")
    up = commands.add_parser("up", parents=[common], help="start the cluster, or the processes of it that do not run")
    commands.add_parser(
        "install", parents=[common], help="start a cluster in which Helm installs Tranche, with its processes as pods"
    )
    demo = commands.add_parser(
        "demo", parents=[common], help="run up, all demos and down; fail on an unexpected result"
    )
    for subparser in (up, demo):
        subparser.add_argument("--no-real-node", action="store_true", help="run without kubelet and containerd")
    for name, function in COMMANDS.items():
        commands.add_parser(name, parents=[common], help=_summary(function))
    commands.add_parser("status", parents=[common], help="show which of Tranche's processes run and are ready")
    commands.add_parser("down", parents=[common], help="stop the lab and remove everything but logs and evidence")
    commands.add_parser("doctor", parents=[common], help="check what the lab needs of this machine; change nothing")
    commands.add_parser("help", help="show this text")
    return parser


def _summary(function: Callable[[Layout], Iterator[str]]) -> str:
    """Return the first line of a docstring as help text, in which argparse expands percent signs."""
    line = (function.__doc__ or "").partition("\n")[0].removesuffix(".")
    return (line[:1].lower() + line[1:]).replace("%", "%%")


def _root(arguments: argparse.Namespace) -> Path:
    root: Path = arguments.root or Path(os.environ.get("LAB_ROOT") or ".lab")
    return root.resolve()


def _layout(arguments: argparse.Namespace) -> Layout:
    return base_port.find(_root(arguments), asked=arguments.base_port)


def _up(arguments: argparse.Namespace) -> int:
    with exclusive(_layout(arguments).lock, holder="`lab up`"):
        layout = _choose(arguments)
        cluster.up(layout, with_real_node=not arguments.no_real_node)
    print(f"\n{fleet.SIMULATED_NOTE}")
    print(
        f"\nTo use the lab in this shell, paste the next line; then try `kubectl gpu top`.\n{plugin.shell_line(layout)}"
    )
    return 0


def _install(arguments: argparse.Namespace) -> int:
    with exclusive(_layout(arguments).lock, holder="`lab install`"):
        layout = _choose(arguments)
        helm_installation.up(layout)
    print(
        f"\nTo use the lab in this shell, paste the next line; then try `kubectl -n {SYSTEM_NAMESPACE} get pods` and"
        f" `helm -n {SYSTEM_NAMESPACE} list`.\n{plugin.shell_line(layout)}"
    )
    return 0


def _down(layout: Layout) -> int:
    with exclusive(layout.lock, holder="`lab down`"):
        _stop(layout)
    return 0


def _demo(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    with exclusive(_layout(arguments).lock, holder="`lab demo`"):
        layout = _choose(arguments)
        try:
            cluster.up(layout, with_real_node=not arguments.no_real_node)
            for name in DEMO:
                _show(layout, name)
        finally:
            _stop(layout)
    print(f"\nall results were as expected, in {time.monotonic() - began:.0f} s")
    return 0


def _choose(arguments: argparse.Namespace) -> Layout:
    with step("ports") as outcome:
        layout, choice = base_port.choose(_root(arguments), asked=arguments.base_port)
        outcome.append(choice)
    return layout


def _stop(layout: Layout) -> None:
    with step("down") as outcome:
        left = cluster.down(layout)
        outcome.append(f"kept, used by another lab: {', '.join(left)}" if left else "only logs and evidence are left")


def _run(layout: Layout, command: str) -> int:
    # Read-only commands may run while another command holds the lock; `evidence` runs `verify` itself.
    with exclusive(layout.lock, holder=f"`lab {command}`") if command not in READ_ONLY else nullcontext():
        _show(layout, command)
    return 0


def _show(layout: Layout, command: str) -> None:
    if not layout.is_remembered:
        raise LabError(f"lab in {layout.root}", why="it is not running", remedy="run `make up`")
    with step(command):
        if command.startswith("demo-"):
            # Each demo can run on its own, so each needs the label.
            print("\n".join(f"  {line}" for line in demos.opt_in(layout)))
        for line in COMMANDS[command](layout):
            print(f"  {line}", flush=True)


def _status(layout: Layout) -> int:
    rows = components.status(layout) if layout.is_remembered else []
    print("\n".join(f"{name:<16} {state}" for name, state in rows) or f"the lab in {layout.root} is not running")
    return 0 if rows and all("not" not in state for _, state in rows) else 1


def _doctor(layout: Layout, *, asked: int | None) -> int:
    findings = doctor.examine(layout, asked=asked)
    print("\n".join(map(str, findings)))
    return 0 if doctor.is_healthy(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
