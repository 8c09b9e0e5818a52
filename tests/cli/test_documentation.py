"""docs/cli.md shows every command and every exit code that there is."""

from pathlib import Path

import pytest

from cli import arguments, commands

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.parametrize("name", [name for name, _ in commands.every()])
def test_every_command_is_documented_with_an_example(name: str) -> None:
    """A command that the page does not show is unknown to users."""
    assert f"kubectl gpu {name}" in PAGE.split("```console", 1)[1]


def test_every_exit_code_is_documented() -> None:
    """Scripts rely on them: help and page say the same."""
    told = arguments.parser().epilog or ""
    codes = [word for word in told.replace(",", " ").split() if word.isdigit()]
    assert codes
    assert all(f"| {code} |" in PAGE for code in codes)
