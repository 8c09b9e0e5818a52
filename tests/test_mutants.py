"""The command that looks for mutations which no test notices."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.mutants import __main__ as command
from tests.mutants import results, workspace
from tests.mutants.results import Change, Mutant, State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DIFFERENCE = """\
diff --git a/allocation/a.py b/allocation/a.py
--- a/allocation/a.py
+++ b/allocation/a.py
@@ -3 +3,2 @@
-    return 1
+    return 2
+    # why
diff --git a/notes/a.txt b/notes/a.txt
--- a/notes/a.txt
+++ b/notes/a.txt
@@ -1 +1 @@
-old
+new
"""
PROJECT = """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
markers = ["apiserver", "kubelet", "helm", "image", "archive"]
"""
CODE = """
def larger(one, other):
    return one if one > other else other


def half(number):
    return number // 2
"""
TESTS = """
from code_.numbers import half, larger


def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2


def test_half():
    half(1)
"""
A = Change("allocation.a.f", "return 1", "return 2")
B = Change("allocation.b.f", "return 1", "return 2")


def test_lines_of_python_that_were_added_are_those_to_mutate() -> None:
    """A mutant counts if it changes one of them."""
    lines = command.changed_lines(DIFFERENCE)
    assert lines == {"allocation/a.py": {"return 2", "# why"}}
    assert command.is_changed(Change("allocation.a.f", "return 2", "return 3"), lines["allocation/a.py"])
    assert not command.is_changed(A, lines["allocation/a.py"])


def test_sample_is_the_same_for_the_same_seed() -> None:
    """So a score can be computed again; never more than there are."""
    names = [f"m{number}" for number in range(100)]
    chosen = command.sample_of(names, 10, seed=1)
    assert chosen == command.sample_of(names[::-1], 10, seed=1) != command.sample_of(names, 10, seed=2)
    assert len(set(chosen)) == 10
    assert sorted(command.sample_of(names, 500, seed=1)) == sorted(names)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, State.SURVIVED),
        (33, State.SURVIVED),
        (1, State.KILLED),
        (-24, State.KILLED),
        (36, State.KILLED),
        (None, State.UNTRIED),
        (34, State.UNTRIED),
    ],
)
def test_exit_codes_of_mutmut(code: int | None, expected: State) -> None:
    """Failures, timeouts and crashes notice a mutant; a function that no test calls hides it."""
    assert results.state(code) is expected


def test_score_leaves_accepted_survivors_out() -> None:
    """Of 4 killed, one accepted and one other survivor, four of five are noticed."""
    states = [State.KILLED] * 4 + [State.SURVIVED] * 2 + [State.UNTRIED]
    mutants = [Mutant(str(number), "a.py", state) for number, state in enumerate(states)]
    counted = results.score(mutants, [A, B], {A: "equivalent"})
    assert (counted.killed, counted.accepted, counted.survived, counted.untried) == (4, 1, 1, 1)
    assert counted.percent == 80.0
    assert results.score([], [], {}).percent == 100.0


def test_results_of_both_passes_count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What a room's own tests notice is noticed, although mutmut forgets it when the other tests are tried."""
    states = {
        "own": (State.KILLED, State.UNTRIED),
        "wide": (State.SURVIVED, State.KILLED),
        "none": (State.SURVIVED, State.SURVIVED),
    }
    runs: list[list[str]] = []

    def run(folder: Path, names: Sequence[str] = (), **_: float) -> bool:
        runs.append(list(names))
        return True

    monkeypatch.setattr(workspace, "prepare", lambda _, **__: None)
    monkeypatch.setattr(workspace, "run", run)
    monkeypatch.setattr(
        results,
        "read",
        lambda _: [Mutant(name, "a.py", by_pass[len(runs) - 1]) for name, by_pass in states.items()],
    )
    monkeypatch.setattr(results, "change", lambda _, mutant: Change(f"webhook.a.{mutant.name}", "1", "2"))
    assert command._try_room("webhook", seconds=60, processes=1, reasons={}) == 1
    assert runs == [[], ["wide", "none"]]
    assert "66.7 % of 3 mutants noticed (required: 90 %), 0 accepted, 0 not tried" in capsys.readouterr().out


def test_entry_of_a_mutation_that_does_not_survive_is_stale() -> None:
    """Only entries of the room that was tried are looked at."""
    other = Change("webhook.a.f", "return 1", "return 2")
    assert command._stale("allocation", [A], {A: "equivalent", B: "equivalent", other: "equivalent"}) == [B]


@pytest.mark.parametrize("entry", ["reason: ''", "reason: equivalent"])
def test_accepted_survivors_have_reasons_and_are_listed_once(tmp_path: Path, entry: str) -> None:
    """An entry without a reason, or a second one of the same mutation, is an error."""
    file = tmp_path / "accepted.yaml"
    written = f"- {{function: a.f, before: return 1, after: return 2, {entry}}}\n"
    file.write_text(written * (2 if "equivalent" in entry else 1))
    with pytest.raises(ValueError, match="twice or has no reason"):
        results.accepted(file)


def test_committed_entries_are_readable() -> None:
    """Each names a function of a room that is mutated."""
    rooms = tuple(f"{room.replace('/', '.')}." for room in command.ROOMS)
    assert all(each.function.startswith(rooms) for each in results.accepted())


def test_mutants_that_no_test_notices_are_found(tmp_path: Path) -> None:
    """A function that is called but not checked has survivors; one that is checked has only the equivalent one."""
    root, folder = tmp_path / "project", tmp_path / "copy"
    for name, text in (("pyproject.toml", PROJECT), ("code_/numbers.py", CODE), ("tests/test_numbers.py", TESTS)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "code_" / "__init__.py").touch()
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    workspace.prepare(folder, sources=["code_/numbers.py"], tests=["tests"], root=root)
    assert workspace.run(folder, processes=1, seconds=120)
    found = {each: results.change(folder, each) for each in results.read(folder)}
    survivors = {found[each] for each in found if each.state is State.SURVIVED}
    assert Change("code_.numbers.half", "return number // 2", "return number // 3") in survivors
    assert {each for each in survivors if each.function.endswith("larger")} == {
        Change("code_.numbers.larger", "return one if one > other else other", "return one if one >= other else other")
    }
