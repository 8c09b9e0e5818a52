"""The example of docs/library.md runs and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "library.md").read_text(encoding="utf-8")


def test_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """As it is written, in about thirty lines."""
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (printed,) = re.findall(r"# prints: (.+)", example)
    assert len([line for line in example.splitlines() if line]) <= 30
    exec(compile(example, "docs/library.md", "exec"), {"__name__": "example"})  # noqa: S102 -- the page's own code
    assert capsys.readouterr().out.strip() == printed
