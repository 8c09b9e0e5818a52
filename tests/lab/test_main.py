from __future__ import annotations

import pytest

from lab.__main__ import COMMANDS, main


@pytest.mark.parametrize("arguments", [["--help"], ["help"], []])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Help texts come from docstrings, whose percent signs must not end the command."""
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr().out
    assert code == 0
    assert [name for name in COMMANDS if f"    {name} " not in printed and f"    {name}\n" not in printed] == []
    assert "30 % of one card" in " ".join(printed.split())
