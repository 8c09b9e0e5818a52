"""What became of mutants, and which survivors are accepted."""

from __future__ import annotations

import contextlib
import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import yaml
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

ACCEPTED: Final = Path(__file__).with_name("accepted.yaml")


class State(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNTRIED = "untried"


_SURVIVED: Final = frozenset({0, 33})  # 33: no test calls its function
_SKIPPED: Final = 34
_UNTRIED: Final = frozenset({None, 2, _SKIPPED})  # 2: interrupted


class Change(msgspec.Struct, frozen=True, order=True):
    """A mutation: what of a function is written otherwise.

    Attributes:
        function: the dotted path of the function.
        before: the lines as they are.
        after: the lines as the mutant has them.
    """

    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.function}\n  - {self.before}\n  + {self.after}"


class Accepted(msgspec.Struct, frozen=True):
    """A mutation that may survive, and why."""

    function: str
    before: str
    after: str
    reason: str

    @property
    def change(self) -> Change:
        """The mutation."""
        return Change(self.function, self.before, self.after)


class Mutant(msgspec.Struct, frozen=True):
    """A mutant, by mutmut's name for it."""

    name: str
    file: str
    state: State


def read(folder: Path) -> Iterator[Mutant]:
    """Yield the mutants that mutmut has made in a folder."""
    for meta in _metas(folder):
        file = str(meta.relative_to(folder / "mutants")).removesuffix(".meta")
        codes = json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
        yield from (Mutant(name, file, state(code)) for name, code in codes.items())


def choose(folder: Path, names: Iterable[str]) -> None:
    """Choose the mutants that mutmut tries; the results of all others stay.

    mutmut tries what has no result. It also takes names, but compares each with each, for many minutes.
    """
    wanted = frozenset(names)
    for meta in _metas(folder):
        kept = json.loads(meta.read_text(encoding="utf-8"))
        codes = kept["exit_code_by_key"]
        others = {name: _SKIPPED if code is None else code for name, code in codes.items()}
        kept["exit_code_by_key"] = {name: None if name in wanted else code for name, code in others.items()}
        meta.write_text(json.dumps(kept, indent=4), encoding="utf-8")


def record(folder: Path, name: str, code: int) -> None:
    """Keep the exit code of tests that were run with a mutant, as mutmut does."""
    for meta in _metas(folder):
        kept = json.loads(meta.read_text(encoding="utf-8"))
        if name in kept["exit_code_by_key"]:
            kept["exit_code_by_key"][name] = code
            meta.write_text(json.dumps(kept, indent=4), encoding="utf-8")


def _metas(folder: Path) -> list[Path]:
    """Return the files in which mutmut keeps the results, one for each module."""
    return sorted((folder / "mutants").rglob("*.py.meta"))


def state(code: int | None) -> State:
    """Return what mutmut's exit code says. Whatever ends the tests kills a mutant: a failure, a timeout, a crash."""
    if code in _UNTRIED:
        return State.UNTRIED
    return State.SURVIVED if code in _SURVIVED else State.KILLED


def change(folder: Path, mutant: Mutant) -> Change:
    """Return what a mutant changes."""
    with contextlib.chdir(folder):
        difference = get_diff_for_mutant(mutant.name, path=mutant.file).splitlines()[2:]
    function, of_class = orig_function_and_class_names_from_key(mutant.name)
    module = mutant.file.removesuffix(".py").replace("/", ".")
    before, after = (" ".join(line[1:].strip() for line in difference if line.startswith(sign)) for sign in ("-", "+"))
    return Change(".".join(part for part in (module, of_class, function.rpartition(".")[2]) if part), before, after)


def accepted(file: Path = ACCEPTED) -> dict[Change, str]:
    """Return the survivors that are accepted, with their reasons.

    Raises:
        ValueError: one is listed twice or has no reason.
    """
    listed = msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")) or [], list[Accepted])
    reasons = {each.change: each.reason for each in listed}
    if len(reasons) < len(listed) or not all(reasons.values()):
        raise ValueError(f"{file}: an entry is there twice or has no reason")
    return reasons


class Score(msgspec.Struct, frozen=True):
    """How many mutants of a room were noticed.

    Attributes:
        killed: mutants for which a test fails.
        accepted: survivors that are accepted.
        survived: the other survivors.
        untried: mutants that were not tried.
    """

    killed: int
    accepted: int
    survived: int
    untried: int

    @property
    def percent(self) -> float:
        """The share of the killed among those that were tried and are not accepted; 100 without any."""
        tried = self.killed + self.survived
        return 100 * self.killed / tried if tried else 100.0


def score(mutants: Iterable[Mutant], survivors: Iterable[Change], reasons: Collection[Change]) -> Score:
    """Count the mutants of a room; `survivors` are the changes of those that survived."""
    counts = dict.fromkeys(State, 0)
    for mutant in mutants:
        counts[mutant.state] += 1
    excused = sum(each in reasons for each in survivors)
    return Score(counts[State.KILLED], excused, counts[State.SURVIVED] - excused, counts[State.UNTRIED])
