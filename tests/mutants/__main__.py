"""Mutation testing: change the code in small ways, one at a time, and see whether a test fails.

    python -m tests.mutants                       every room, for hours; fails below the required scores
    python -m tests.mutants allocation            one room
    python -m tests.mutants --sample 200          200 mutants of each room, chosen at random
    python -m tests.mutants --changed HEAD^ --minutes 5   the changed lines, as CI does

docs/mutation.md says how to read and accept survivors.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Final

from tests.mutants import results, workspace
from tests.mutants.results import Change, Mutant, State

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

_SCHEDULER: Final = (
    *("cycle", "state", "queue", "binding", "preemption", "consolidation", "fairness", "leases", "claims", "bindings"),
    *("gangs", "gang_scheduling"),
)
ROOMS: Final[Mapping[str, float]] = {
    "allocation": 95.0,
    "webhook": 90.0,
    **dict.fromkeys((f"scheduler/{room}" for room in _SCHEDULER), 90.0),
}
"""The folders that are mutated, with the percentage of mutants that tests must notice."""
WIDE: Final = ("tests/allocation", "tests/conformance", "tests/scheduler", "tests/webhook", "tests/cli", "tests/agent")
"""The tests that are tried on what survives those of its own room."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if tests do not notice enough."""
    options = _parser().parse_args(arguments)
    reasons = results.accepted()
    if options.changed:
        return _try_changed(options.changed, minutes=options.minutes, processes=options.processes, reasons=reasons)
    end = time.monotonic() + 60 * options.minutes
    return max(
        _try_room(
            room,
            seconds=end - time.monotonic(),
            processes=options.processes,
            reasons=reasons,
            sample=options.sample,
            seed=options.seed,
        )
        for room in options.rooms or ROOMS
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description="Change the code in small ways, one at a time, and see whether a test fails (docs/mutation.md).",
    )
    parser.add_argument("rooms", nargs="*", choices=[*ROOMS, []], metavar="ROOM", help=f"of {', '.join(ROOMS)}")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="try only N of each room, at random")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of a sample")
    parser.add_argument("--changed", metavar="REV", help="try only the lines that differ from this revision")
    parser.add_argument("--minutes", type=float, default=24 * 60.0, help="end after this time; the rest is not tried")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many mutants at a time")
    return parser


def _try_room(
    room: str, *, seconds: float, processes: int, reasons: dict[Change, str], sample: int = 0, seed: int = 1
) -> int:
    """Try the mutants of a room by its own tests, then what survives by those of the rooms that use it; print both.

    All of them, or a random sample of `sample`.
    """
    folder, sources = workspace.FOLDER / room.replace("/", "-"), files(room)
    begin = time.monotonic()
    workspace.prepare(folder, sources=sources, tests=[_tests_of(room)])
    wanted: list[str] = []
    if sample:
        workspace.generate(folder, processes=processes)
        wanted = sample_of([each.name for each in results.read(folder)], sample, seed=seed)
    in_time = workspace.run(folder, wanted, processes=processes, seconds=seconds)
    tried = {each.name: each for each in _chosen(folder, wanted)}
    left = [each.name for each in tried.values() if each.state is State.SURVIVED]
    if in_time and left:
        workspace.prepare(folder, sources=sources, tests=WIDE)
        in_time = workspace.run(folder, left, processes=processes, seconds=seconds - (time.monotonic() - begin))
        # With other tests mutmut forgets what it knew of all the mutants.
        tried |= {each.name: each for each in _chosen(folder, left)}
    mutants = list(tried.values())
    survivors = {each: results.change(folder, each) for each in mutants if each.state is State.SURVIVED}
    counted = results.score(mutants, survivors.values(), reasons)
    _print_survivors(survivors, reasons)
    stale = _stale(room, survivors.values(), reasons) if in_time and not sample else []
    for each in stale:
        print(f"\naccepted, but killed or gone; remove it from {results.ACCEPTED.name}:\n{each}")
    print(
        f"\n{room}: {counted.percent:.1f} % of {counted.killed + counted.survived} mutants noticed (required:"
        f" {ROOMS[room]:g} %), {counted.accepted} accepted, {counted.untried} not tried"
    )
    return int(counted.percent < ROOMS[room] or bool(stale))


def sample_of(names: Sequence[str], size: int, *, seed: int) -> list[str]:
    """Return `size` of the mutants, the same ones for the same seed."""
    return random.Random(seed).sample(sorted(names), min(size, len(names)))  # noqa: S311 -- no secret


def _chosen(folder: Path, names: Collection[str]) -> list[Mutant]:
    """Return the mutants with these names; all without names."""
    return [each for each in results.read(folder) if not names or each.name in names]


def _try_changed(revision: str, *, minutes: float, processes: int, reasons: dict[Change, str]) -> int:
    """Try the mutants of the lines that differ from a revision, by the tests of their rooms."""
    lines = changed_lines(_difference(revision))
    rooms = sorted({room for room in ROOMS for file in lines if file in files(room)})
    if not rooms:
        print(f"no line of {', '.join(ROOMS)} differs from {revision}")
        return 0
    end, folder = time.monotonic() + 60 * minutes, workspace.FOLDER / "changed"
    sources = [file for file in lines if any(file in files(room) for room in rooms)]
    workspace.prepare(folder, sources=sources, tests=[_tests_of(room) for room in rooms])
    workspace.generate(folder, processes=processes)
    wanted = [each for each in results.read(folder) if is_changed(results.change(folder, each), lines[each.file])]
    in_time = not wanted or workspace.run(
        folder, [each.name for each in wanted], processes=processes, seconds=end - time.monotonic()
    )
    names = {each.name for each in wanted}
    mutants = [each for each in results.read(folder) if each.name in names]
    survivors = {each: results.change(folder, each) for each in mutants if each.state is State.SURVIVED}
    counted = results.score(mutants, survivors.values(), reasons)
    _print_survivors(survivors, reasons)
    late = "" if in_time else f" after {minutes:g} minutes"
    print(f"\nof the lines that differ from {revision}: {counted.killed} mutants noticed, {counted.survived} not,")
    print(f"{counted.accepted} accepted, {counted.untried} not tried{late}")
    return int(counted.survived > 0)


def files(room: str) -> list[str]:
    """Return the modules of a room, from the project's root."""
    return sorted(str(file.relative_to(workspace.ROOT)) for file in (workspace.ROOT / room).rglob("*.py"))


def _tests_of(room: str) -> str:
    return f"tests/{room}"


def _difference(revision: str) -> str:
    done = subprocess.run(
        ["git", "diff", "--unified=0", "--no-color", "--no-ext-diff", revision, "--", *ROOMS],
        cwd=workspace.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: git diff {revision}: {done.stderr.strip()}; name a revision that this checkout has")
    return done.stdout


def changed_lines(difference: str) -> dict[str, set[str]]:
    """Return the lines that a unified diff adds, by file."""
    lines: dict[str, set[str]] = {}
    file = ""
    for line in difference.splitlines():
        if named := re.fullmatch(r"\+\+\+ b/(.*\.py)", line):
            file = named[1]
        elif line.startswith("+++ "):
            file = ""
        elif line.startswith("+") and file:
            lines.setdefault(file, set()).add(line[1:].strip())
    return lines


def is_changed(change: Change, lines: Collection[str]) -> bool:
    """Return whether a mutant changes one of these lines."""
    return any(line in change.before for line in lines if line)


def _stale(room: str, survivors: Collection[Change], reasons: Mapping[Change, str]) -> list[Change]:
    pattern = f"{room.replace('/', '.')}.*"
    return [each for each in reasons if fnmatch(each.function, pattern) and each not in survivors]


def _print_survivors(survivors: Mapping[Mutant, Change], reasons: Mapping[Change, str]) -> None:
    for mutant, change in sorted(survivors.items(), key=lambda each: each[1]):
        if change not in reasons:
            print(f"\n{change}\n  ({mutant.name})")


if __name__ == "__main__":
    sys.exit(main())
