"""The command that looks for mutations which no test notices."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.mutants import __main__ as command
from tests.mutants import results, workspace
from tests.mutants.results import Change, Mutant, State

if TYPE_CHECKING:
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


def double(number):
    return number * 2
"""
TESTS = """
from code_.numbers import double, half, larger


def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2


def test_half():
    half(1)


def test_double():
    assert double(2) == 4
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


class FakeMutmut:
    """Mutants of two rooms, in the files where mutmut keeps results; what the first and the second run notice."""

    CALLS: ClassVar = {
        "webhook.a.x_f": ["tests/webhook/test_a.py::test_f", "tests/agent/test_b.py::test_f"],
        "scheduler.queue.b.x_g": ["tests/webhook/test_a.py::test_f", "tests/scheduler/queue/test_b.py::test_g"],
    }
    OWN: ClassVar = {
        "webhook.a.x_f": ["tests/webhook/test_a.py::test_f"],
        "scheduler.queue.b.x_g": ["tests/scheduler/queue/test_b.py::test_g"],
    }
    MADE: ClassVar = {
        "webhook/a.py": ["webhook.a.x_f__mutmut_own", "webhook.a.x_f__mutmut_wide", "webhook.a.x_f__mutmut_none"],
        "scheduler/queue/b.py": ["scheduler.queue.b.x_g__mutmut_own", "scheduler.queue.b.x_g__mutmut_wide"],
    }
    NOTICED = ("own", "wide")
    """What the mutants' names end with that the first and the second run notice."""

    def __init__(self, folder: Path) -> None:
        self.runs: list[tuple[dict[str, list[str]], list[str]]] = []
        self.codes: dict[str, int | None] = {}
        """What tests with an API server exit with, by mutant; the default is that there is no such test."""
        self._calls: dict[str, list[str]] = {}
        self._metas = [folder / "rooms" / "mutants" / f"{file}.meta" for file in self.MADE]

    def generate(self, _: Path, **__: object) -> None:
        """Write the files of results."""
        for meta, names in zip(self._metas, self.MADE.values(), strict=True):
            meta.parent.mkdir(parents=True)
            meta.write_text(json.dumps({"exit_code_by_key": dict.fromkeys(names)}))

    def assign(self, _: Path, calls: dict[str, list[str]]) -> None:
        """Keep which tests are to be run."""
        self._calls = calls

    def run(self, _: Path, **__: object) -> bool:
        """Try what has no result."""
        noticed, tried = self.NOTICED[len(self.runs)], []
        for meta in self._metas:
            codes = json.loads(meta.read_text())["exit_code_by_key"]
            open_ = [name for name, code in codes.items() if code is None]
            codes |= {name: int(name.endswith(noticed)) for name in open_}
            meta.write_text(json.dumps({"exit_code_by_key": codes}))
            tried += open_
        self.runs.append((self._calls, tried))
        return True

    def run_with_api_server(self, _: Path, tests: str, *, mutant: str = "", **__: object) -> int | None:
        """Run the tests of webhook, and of no other room."""
        return self.codes.get(mutant, 5) if tests == "tests/webhook" else 5


@pytest.fixture
def mutmut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeMutmut:
    """Mutants that are made and tried at once."""
    fake = FakeMutmut(tmp_path)
    monkeypatch.setattr(workspace, "FOLDER", tmp_path)
    monkeypatch.setattr(workspace, "prepare", lambda _, **__: None)
    monkeypatch.setattr(workspace, "generate", fake.generate)
    monkeypatch.setattr(workspace, "learn_calls", lambda _: fake.CALLS)
    monkeypatch.setattr(workspace, "assign", fake.assign)
    monkeypatch.setattr(workspace, "run", fake.run)
    monkeypatch.setattr(workspace, "run_with_api_server", fake.run_with_api_server)
    monkeypatch.setattr(results, "change", lambda _, mutant: Change(mutant.name, "1", "2"))
    return fake


def test_rooms_share_a_pass_and_have_a_score_each(mutmut: FakeMutmut, capsys: pytest.CaptureFixture[str]) -> None:
    """What the tests of its room do not notice is tried by all that call it; a room below its score fails the run."""
    assert command._try_rooms(["webhook", "scheduler/queue"], seconds=60, processes=1, reasons={}) == 1
    (webhook, queue) = mutmut.MADE.values()
    assert mutmut.runs == [(mutmut.OWN, webhook + queue), (mutmut.CALLS, [*webhook[1:], queue[1]])]
    assert capsys.readouterr().out.endswith(
        "webhook: 66.7 % of 3 mutants noticed (required: 90 %), 0 accepted, 0 not tried\n"
        "scheduler/queue: 100.0 % of 2 mutants noticed (required: 90 %), 0 accepted, 0 not tried\n"
    )


def test_rooms_with_their_scores_pass(mutmut: FakeMutmut) -> None:
    """An accepted survivor is not counted."""
    reasons = {Change("webhook.a.x_f__mutmut_none", "1", "2"): "equivalent"}
    assert command._try_rooms(["webhook", "scheduler/queue"], seconds=60, processes=1, reasons=reasons) == 0
    assert len(mutmut.runs) == 2


@pytest.mark.parametrize(("code", "percent"), [(1, 100.0), (None, 100.0), (0, 66.7)])
def test_tests_with_an_api_server_try_what_survives_the_others(
    mutmut: FakeMutmut, capsys: pytest.CaptureFixture[str], code: int | None, percent: float
) -> None:
    """Those of its room; tests that do not end notice a mutant, too."""
    mutmut.codes = {"": 0, "webhook.a.x_f__mutmut_none": code}
    assert command._try_rooms(["webhook"], seconds=6000, processes=1, reasons={}) == int(code == 0)
    assert f"webhook: {percent} % of 3 mutants noticed" in capsys.readouterr().out


def test_tests_with_an_api_server_that_fail_without_a_mutant_are_an_error(mutmut: FakeMutmut) -> None:
    """They would notice every mutant."""
    mutmut.codes = {"": 1}
    with pytest.raises(RuntimeError, match="a test of tests/webhook that needs an API server fails without a mutant"):
        command._try_rooms(["webhook"], seconds=60, processes=1, reasons={})


def test_mutants_that_time_did_not_suffice_for_survive(mutmut: FakeMutmut, capsys: pytest.CaptureFixture[str]) -> None:
    """The end came before tests with an API server had noticed anything."""
    mutmut.codes = {"": 0, "webhook.a.x_f__mutmut_none": None}
    assert command._try_rooms(["webhook"], seconds=60, processes=1, reasons={}) == 1
    assert "webhook: 66.7 % of 3 mutants noticed" in capsys.readouterr().out


def test_sample_is_of_each_room(mutmut: FakeMutmut, capsys: pytest.CaptureFixture[str]) -> None:
    """The others are not tried, and are not counted as such."""
    command._try_rooms(["webhook", "scheduler/queue"], seconds=60, processes=1, reasons={}, sample=1)
    assert sorted(name.partition(".")[0] for name in mutmut.runs[0][1]) == ["scheduler", "webhook"]
    assert capsys.readouterr().out.count("of 1 mutants noticed") == 2


def test_entry_of_a_mutation_that_does_not_survive_is_stale() -> None:
    """Only entries of the room that was tried are looked at."""
    other = Change("webhook.a.f", "return 1", "return 2")
    assert command._stale(["allocation"], [A], [A, B, other]) == [B]


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


def project(root: Path, files: dict[str, str]) -> Path:
    """Write a checkout of a project; return where it is."""
    for name, text in {"pyproject.toml": PROJECT, "code_/__init__.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return root


def survivors(folder: Path) -> set[Change]:
    """Return what no test has noticed."""
    return {results.change(folder, each) for each in results.read(folder) if each.state is State.SURVIVED}


def test_mutants_that_no_test_notices_are_found(tmp_path: Path) -> None:
    """A function that is called but not checked has survivors; one that is checked has only the equivalent one."""
    root = project(tmp_path / "project", {"code_/numbers.py": CODE, "tests/test_numbers.py": TESTS})
    folder = tmp_path / "copy"
    workspace.prepare(folder, sources=["code_/numbers.py"], tests=["tests"], root=root)
    assert workspace.run(folder, processes=1)
    equivalent = Change(
        "code_.numbers.larger", "return one if one > other else other", "return one if one >= other else other"
    )
    halved = Change("code_.numbers.half", "return number // 2", "return number // 3")
    assert {halved, equivalent} <= (found := survivors(folder))
    assert {each for each in found if each.function.endswith("larger")} == {equivalent}


def test_chosen_mutants_are_tried_by_assigned_tests(tmp_path: Path) -> None:
    """Those of other tests are not run, and other mutants are not tried."""
    root = project(tmp_path / "project", {"code_/numbers.py": CODE, "tests/test_numbers.py": TESTS})
    folder = tmp_path / "copy"
    workspace.prepare(folder, sources=["code_/numbers.py"], tests=["tests"], root=root)
    workspace.generate(folder, processes=1)
    mutated = folder / "mutants" / "code_" / "numbers.py"
    written = mutated.stat().st_mtime_ns
    calls = workspace.learn_calls(folder)
    assert calls == {
        f"code_.numbers.x_{name}": [f"tests/test_numbers.py::test_{name}"] for name in ("larger", "half", "double")
    }
    double = "code_.numbers.x_double"
    names = [each.name for each in results.read(folder) if each.name.startswith(double)]
    for tests, expected in ((calls["code_.numbers.x_half"], State.SURVIVED), (calls[double], State.KILLED)):
        workspace.assign(folder, calls | {double: tests})
        results.choose(folder, names)
        assert workspace.run(folder, processes=1)
        assert {each.state for each in results.read(folder) if each.name in names} == {expected}
    assert {each.state for each in results.read(folder) if each.name not in names} == {State.UNTRIED}
    assert mutated.stat().st_mtime_ns == written, "all mutants are made once"


def test_tests_that_need_an_api_server_are_run_with_one_mutant(tmp_path: Path) -> None:
    """In the copy, and no others: without a mutant they pass."""
    needing = "from code_.numbers import half\nimport pytest\n\n\n@pytest.mark.apiserver\ndef test_half() -> None:\n"
    other = "def test_other() -> None:\n    raise AssertionError\n"
    tests = {"tests/room/test_half.py": f"{needing}    assert half(5) == 2\n", "tests/room/test_other.py": other}
    root, folder = project(tmp_path / "project", {"code_/numbers.py": CODE, **tests}), tmp_path / "copy"
    workspace.prepare(folder, sources=["code_/numbers.py"], tests=["tests"], root=root)
    workspace.generate(folder, processes=1)
    (halved, *_) = [each.name for each in results.read(folder) if "half" in each.name]
    assert workspace.run_with_api_server(folder, "tests/room", seconds=60) == 0
    assert workspace.run_with_api_server(folder, "tests/room", mutant=halved, seconds=60) == 1
    assert workspace.run_with_api_server(folder, "tests/room/test_other.py", seconds=60) == 5
    assert workspace.run_with_api_server(folder, "tests/room", seconds=0.01) is None
    results.record(folder, halved, 1)
    assert {each.name for each in results.read(folder) if each.state is State.KILLED} == {halved}


def test_a_test_that_fails_without_a_mutant_is_named(tmp_path: Path) -> None:
    """Mutmut would only say that one did."""
    wrong = "from code_.numbers import half\n\n\ndef test_half() -> None:\n    assert half(4) == 3\n"
    root = project(tmp_path / "project", {"code_/numbers.py": CODE, "tests/test_numbers.py": wrong})
    workspace.prepare(tmp_path / "copy", sources=["code_/numbers.py"], tests=["tests"], root=root)
    workspace.generate(tmp_path / "copy", processes=1)
    with pytest.raises(RuntimeError, match=r"without a mutant:\ntests\.test_numbers::test_half: (.|\n)*assert 2 == 3"):
        workspace.learn_calls(tmp_path / "copy")


def test_file_is_mutated_that_was_only_copied_before(tmp_path: Path) -> None:
    """Other rooms may be tried in the same folder: mutmut would keep the copy without mutants."""
    modules = dict.fromkeys(("code_/other.py", "code_/numbers.py"), CODE)
    root = project(tmp_path / "project", {"tests/test_numbers.py": TESTS, **modules})
    folder = tmp_path / "copy"
    for source in modules:
        workspace.prepare(folder, sources=[source], tests=["tests"], root=root)
        workspace.generate(folder, processes=1)
        assert {each.file for each in results.read(folder)} == {source}


def test_mutants_of_a_changed_file_are_made_again(tmp_path: Path) -> None:
    """And a file that is gone is gone where the tests run, too."""
    root = project(tmp_path / "project", {"code_/numbers.py": CODE, "code_/data.txt": "1", "code_/gone.txt": "1"})
    folder = tmp_path / "copy"
    for number in ("1", "2"):
        (root / "code_" / "numbers.py").write_text(f"def number():\n    return {number}\n")
        (root / "code_" / "data.txt").write_text(number)
        workspace.prepare(folder, sources=["code_/numbers.py"], tests=["tests"], root=root)
        workspace.generate(folder, processes=1)
        (root / "code_" / "gone.txt").unlink(missing_ok=True)
        assert (folder / "mutants" / "code_" / "data.txt").read_text() == number
        befores = {results.change(folder, each).before for each in results.read(folder)}
        assert befores == {f"return {number}"}
    assert not (folder / "mutants" / "code_" / "gone.txt").exists()
