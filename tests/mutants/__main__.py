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
from typing import TYPE_CHECKING, Final

from tests.mutants import results, workspace
from tests.mutants.results import Change, Mutant, State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
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
_NO_TESTS: Final = 5
"""pytest's exit code if there is no test to run."""
_ENDLESS: Final = -24
"""mutmut's exit code for tests that took too long."""
_LONGEST_S: Final = 600.0
"""The time after which tests with an API server are taken for endless."""
WIDE: Final = (
    *("tests/allocation", "tests/conformance", "tests/scheduler", "tests/webhook", "tests/cli", "tests/agent"),
    "tests/test_metrics_page.py",
)
"""The tests that are tried on what survives those of its own room."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if tests do not notice enough."""
    options = _parser().parse_args(arguments)
    reasons, seconds = results.accepted(), 60 * options.minutes
    if options.changed:
        return _try_changed(options.changed, seconds=seconds, processes=options.processes, reasons=reasons)
    return _try_rooms(
        options.rooms or [*ROOMS],
        seconds=seconds,
        processes=options.processes,
        reasons=reasons,
        sample=options.sample,
        seed=options.seed,
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


def _try_rooms(
    rooms: Sequence[str],
    *,
    seconds: float,
    processes: int,
    reasons: Mapping[Change, str],
    sample: int = 0,
    seed: int = 1,
) -> int:
    """Try the mutants of rooms by the tests of their rooms, then what survives by all that call it.

    All mutants, or a random sample of `sample` of each room. The rooms share one pass: most of the time of a small
    sample goes to making mutants and to finding out which tests call what.
    """
    end, folder = time.monotonic() + seconds, workspace.FOLDER / "rooms"
    sources = [file for room in rooms for file in files(room)]
    workspace.prepare(folder, sources=sources, tests=WIDE)
    workspace.generate(folder, processes=processes)
    made = [each.name for each in results.read(folder)]
    names = [
        name
        for room in rooms
        for name in sample_of([name for name in made if _is_of(room, name)], sample or len(made), seed=seed)
    ]
    calls = workspace.learn_calls(folder)
    workspace.assign(folder, _own(rooms, calls))
    results.choose(folder, names)
    in_time = workspace.run(folder, processes=processes, seconds=end - time.monotonic())
    left = [each.name for each in _named(folder, names) if each.state is State.SURVIVED]
    if in_time and left:
        workspace.assign(folder, calls)
        results.choose(folder, left)
        in_time = workspace.run(folder, processes=processes, seconds=end - time.monotonic())
    in_time = in_time and _try_with_api_server(folder, rooms, names, end=end)
    tried = _named(folder, names)
    survivors = _survivors(folder, tried)
    _print_survivors(survivors, reasons)
    stale = _stale(rooms, survivors.values(), reasons) if in_time and not sample else []
    for change in stale:
        print(f"\naccepted, but killed or gone; remove it from {results.ACCEPTED.name}:\n{change}")
    print()
    enough = [_print_score(room, tried, survivors, reasons) for room in rooms]
    return int(not all(enough) or bool(stale))


def _try_with_api_server(folder: Path, rooms: Iterable[str], names: Collection[str], *, end: float) -> bool:
    """Try what survives by the tests of its room that need an API server; return whether time sufficed.

    Raises:
        RuntimeError: one of them fails without a mutant.
    """
    for room in rooms:
        tests = _tests_of(room)
        left = [each for each in _named(folder, names) if each.state is State.SURVIVED and _is_of(room, each.name)]
        without = workspace.run_with_api_server(folder, tests, seconds=end - time.monotonic()) if left else _NO_TESTS
        if without == _NO_TESTS:
            continue
        if without is None:
            return False
        if without:
            raise RuntimeError(f"a test of {tests} that needs an API server fails without a mutant")
        for mutant in left:
            seconds = min(end - time.monotonic(), _LONGEST_S)
            code = workspace.run_with_api_server(folder, tests, mutant=mutant.name, seconds=seconds)
            if code is None and seconds < _LONGEST_S:
                return False
            results.record(folder, mutant.name, _ENDLESS if code is None else code)
    return True


def sample_of(names: Sequence[str], size: int, *, seed: int) -> list[str]:
    """Return `size` of the mutants, the same ones for the same seed."""
    return random.Random(seed).sample(sorted(names), min(size, len(names)))  # noqa: S311 -- no secret


def _is_of(room: str, function: str) -> bool:
    """Return whether a function or a mutant, by its dotted path, is of a room."""
    return function.startswith(f"{room.replace('/', '.')}.")


def _own(rooms: Iterable[str], calls: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Keep, of the tests that call each function, those of its room."""
    return {
        function: [test for test in tests if test.startswith(f"{_tests_of(room)}/")]
        for room in rooms
        for function, tests in calls.items()
        if _is_of(room, function)
    }


def _named(folder: Path, names: Collection[str]) -> list[Mutant]:
    wanted = frozenset(names)
    return [each for each in results.read(folder) if each.name in wanted]


def _survivors(folder: Path, tried: Iterable[Mutant]) -> dict[Mutant, Change]:
    return {each: results.change(folder, each) for each in tried if each.state is State.SURVIVED}


def _print_score(
    room: str, tried: Iterable[Mutant], survivors: Mapping[Mutant, Change], reasons: Mapping[Change, str]
) -> bool:
    """Print the score of a room; return whether it is as high as required."""
    mutants = [each for each in tried if _is_of(room, each.name)]
    counted = results.score(mutants, [survivors[each] for each in mutants if each in survivors], reasons)
    print(
        f"{room}: {counted.percent:.1f} % of {counted.killed + counted.survived} mutants noticed (required:"
        f" {ROOMS[room]:g} %), {counted.accepted} accepted, {counted.untried} not tried"
    )
    return counted.percent >= ROOMS[room]


def _try_changed(revision: str, *, seconds: float, processes: int, reasons: Mapping[Change, str]) -> int:
    """Try the mutants of the lines that differ from a revision, by the tests of their rooms."""
    lines = changed_lines(_difference(revision))
    rooms = sorted({room for room in ROOMS for file in lines if file in files(room)})
    if not rooms:
        print(f"no line of {', '.join(ROOMS)} differs from {revision}")
        return 0
    end, folder = time.monotonic() + seconds, workspace.FOLDER / "changed"
    sources = [file for file in lines if any(file in files(room) for room in rooms)]
    workspace.prepare(folder, sources=sources, tests=[_tests_of(room) for room in rooms])
    workspace.generate(folder, processes=processes)
    names = [each.name for each in results.read(folder) if is_changed(results.change(folder, each), lines[each.file])]
    results.choose(folder, names)
    in_time = True
    if names:
        workspace.learn_calls(folder)
        in_time = workspace.run(folder, processes=processes, seconds=end - time.monotonic())
        in_time = in_time and _try_with_api_server(folder, rooms, names, end=end)
    tried = _named(folder, names)
    survivors = _survivors(folder, tried)
    counted = results.score(tried, survivors.values(), reasons)
    _print_survivors(survivors, reasons)
    late = "" if in_time else f" after {seconds / 60:g} minutes"
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


def _stale(rooms: Iterable[str], survivors: Collection[Change], reasons: Iterable[Change]) -> list[Change]:
    """Return the accepted mutations of rooms that do not survive."""
    return [each for each in reasons if any(_is_of(room, each.function) for room in rooms) and each not in survivors]


def _print_survivors(survivors: Mapping[Mutant, Change], reasons: Mapping[Change, str]) -> None:
    for mutant, change in sorted(survivors.items(), key=lambda each: each[1]):
        if change not in reasons:
            print(f"\n{change}\n  ({mutant.name})")


if __name__ == "__main__":
    sys.exit(main())
