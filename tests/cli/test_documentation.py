"""docs/cli.md covers every command and every exit code."""

from pathlib import Path

import pytest

from cli import arguments, commands

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


@pytest.mark.parametrize("name", [name for name, _ in commands.every()])
def test_every_command_has_an_example(name: str) -> None:
    """The page shows each command in a console block."""
    assert f"kubectl gpu {name}" in PAGE.split("```console", 1)[1]


def test_every_exit_code_is_documented() -> None:
    """Scripts rely on exit codes, so the help and the page list the same ones."""
    epilog = arguments.parser().epilog or ""
    codes = [word for word in epilog.replace(",", " ").split() if word.isdigit()]
    assert codes
    assert all(f"| {code} |" in PAGE for code in codes)
