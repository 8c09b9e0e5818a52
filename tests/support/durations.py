"""How long tests take, and which fail: a run keeps it in .lab/durations.json.

`make test-durations` prints what takes longest, `make test-again` tries again what failed.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

FILE: Final = Path(__file__).parents[2] / ".lab" / "durations.json"
LONGEST: Final = 50
_FIXTURE: Final = "fixture"


class Durations:
    """Measures the phases of each test, and the setup of each fixture, in all processes of a run."""

    def __init__(self, file: Path = FILE) -> None:
        """Begin to measure; only the process that gets all reports writes the file."""
        self._file = file
        self._begin = time.time()
        self._phases: list[dict[str, Any]] = []
        self._fixtures: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Send the time of a fixture's setup along with the report of the test that needed it first."""
        begin = time.perf_counter()
        try:
            return (yield)
        finally:
            seconds = time.perf_counter() - begin
            item = getattr(request, "_pyfuncitem", None)
            if item is not None:
                item.user_properties.append((_FIXTURE, [fixturedef.argname, seconds]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a phase took, and whether it failed."""
        phase = {"test": report.nodeid, "phase": report.when, "seconds": round(report.duration, 3)}
        self._phases.append(phase | ({"failed": True} if report.failed else {}))
        if report.when == "setup":
            for name, value in report.user_properties:
                if name == _FIXTURE:
                    self._fixtures[value[0]] += value[1]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the file, unless the run was one of single tests, such as those that are tried again."""
        is_of_single_tests = any("::" in each for each in session.config.args)
        if hasattr(session.config, "workerinput") or session.config.option.collectonly or is_of_single_tests:
            return
        content = {
            "exit": int(exitstatus),
            "seconds": round(time.time() - self._begin, 1),
            "processes": session.config.getoption("numprocesses", None) or 1,
            "phases": self._phases,
            "fixtures": {name: round(seconds, 3) for name, seconds in self._fixtures.most_common()},
        }
        self._file.parent.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(content), encoding="utf-8")


def table(content: dict[str, Any]) -> str:
    """Return the longest phases, and the sums by module and by fixture, in seconds."""
    phases = sorted(content["phases"], key=lambda each: -each["seconds"])
    modules: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for each in phases:
        modules[each["test"].partition("::")[0]] += each["seconds"]
        kinds[each["phase"]] += each["seconds"]
    whole = f"{content['seconds']:.0f} s in {content['processes']} processes; " + ", ".join(
        f"{kind} {seconds:.0f} s" for kind, seconds in kinds.most_common()
    )
    longest = ((each["seconds"], f"{each['phase']:8} {each['test']}") for each in phases[:LONGEST])
    return "\n".join(
        [
            whole,
            *_section("longest", longest),
            *_section("modules", ((seconds, name) for name, seconds in modules.most_common(LONGEST))),
            *_section("fixtures", ((seconds, name) for name, seconds in list(content["fixtures"].items())[:20])),
        ]
    )


def _section(title: str, rows: Iterable[tuple[float, str]]) -> list[str]:
    return ["", title, *(f"{seconds:9.2f}  {what}" for seconds, what in rows)]


def main() -> int:
    """Print the table of the last run; return 1 if there was none."""
    try:
        content = json.loads(FILE.read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.stderr.write(f"error: {FILE} does not exist; run `make test` first\n")
        return 1
    sys.stdout.write(f"{table(content)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
