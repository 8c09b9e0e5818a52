"""A test that CI skips without a listed reason fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips

ROOT = Path(__file__).parents[1]
PAGE = f"""
{skips.HEADING}
| test | reason |
|---|---|
| `test_one.py::test_listed` | no such hardware |
| `test_whole.py` | no such hardware |
"""
MODULES = {
    "test_one.py": """
import pytest

@pytest.mark.skip(reason="no such hardware")
def test_listed(): ...

@pytest.mark.skip(reason="no such program")
def test_other(): ...

def test_inside():
    pytest.skip("not now")

@pytest.mark.xfail
def test_expected():
    raise AssertionError
""",
    "test_whole.py": "import pytest\npytest.skip('no hardware', allow_module_level=True)",
    "test_rest.py": "import pytest\npytest.skip('no library', allow_module_level=True)",
}


def test_only_listed_tests_may_be_skipped(tmp_path: Path) -> None:
    """By a mark, within a test and of a whole module; an expected failure is not one of them."""
    (tmp_path / "tests").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "tests" / name).write_text(text)
    (tmp_path / "conftest.py").write_text(
        f"from tests.support.skips import Skips, listed\n"
        f"def pytest_configure(config):\n    config.pluginmanager.register(Skips(listed({PAGE!r})))\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rA",
            "--import-mode=importlib",
            "--continue-on-collection-errors",
            "tests",
        ],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode
    assert "1 xfailed" in done.stdout
    assert "2 skipped" in done.stdout
    for name, reason in (("one.py::test_other", "no such program"), ("one.py::test_inside", "not now")):
        assert f"tests/test_{name} was skipped in CI (Skipped: {reason})" in done.stdout
    assert "tests/test_rest.py was skipped in CI (Skipped: no library)" in done.stdout


@pytest.mark.parametrize("name", sorted(skips.listed(skips.PAGE.read_text(encoding="utf-8"))))
def test_listed_test_exists(name: str) -> None:
    """An entry whose test does not exist any more would hide another of that name."""
    path, _, function = name.partition("::")
    text = (ROOT / path).read_text(encoding="utf-8")
    assert not function or f"def {function}(" in text
