"""In CI a skipped test is a failure, unless docs/features.md lists it with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

PAGE: Final = Path(__file__).parents[2] / "docs" / "features.md"
HEADING: Final = "\n## Skipped in CI\n"


def listed(page: str) -> frozenset[str]:
    """Return the modules and tests that the page's section lists, as ids from the project's root."""
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    return frozenset(f"tests/{name}" for name in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


class Skips:
    """Turns skips that are not listed into failures.

    Args:
        allowed: ids of tests and of modules.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = allowed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Change the report of a test."""
        report = yield
        self._change(report)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Change the report of a module that skipped itself."""
        report = yield
        self._change(report)
        return report

    def _change(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        is_listed = report.nodeid in self._allowed or report.nodeid.partition("::")[0] in self._allowed
        if not report.skipped or is_listed or hasattr(report, "wasxfail"):
            return
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} was skipped in CI ({_reason(report)}): provide what it needs, or list it in"
            f" docs/features.md under {HEADING.strip()!r} with the reason"
        )


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
