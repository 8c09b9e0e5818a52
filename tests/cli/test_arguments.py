import subprocess
import sys

import pytest

from cli import arguments, commands


@pytest.mark.parametrize("argv", [["--help"], *([name, "--help"] for name, _ in commands.every())])
def test_help_is_everywhere(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each level explains itself and exits with 0."""
    with pytest.raises(SystemExit) as end:
        arguments.parse(argv)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: kubectl gpu")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "error: the following arguments are required: COMMAND; see 'kubectl gpu --help'\n"),
        (["env"], "error: the following arguments are required: POD; see 'kubectl gpu env --help'\n"),
        (["cordon"], "error: the following arguments are required: UUID; see 'kubectl gpu cordon --help'\n"),
        (["cordon", "u", "--dry-run=x"], "error: argument --dry-run: invalid choice: 'x'"),
        (["top", "-o", "xml"], "error: argument -o/--output: invalid choice: 'xml'"),
        (["stop"], "error: argument COMMAND: invalid choice: 'stop'"),
        (["inject"], "error: the following arguments are required: -f/--filename; see 'kubectl gpu inject --help'\n"),
        (["rotate-certs", "--settle", "soon"], "error: argument --settle: invalid float value: 'soon'"),
        (["top", "--nodes"], "error: unrecognized arguments: --nodes"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is told apart from a failure by its code, and says where help is."""
    with pytest.raises(SystemExit) as end:
        arguments.parse(argv)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert told.count("\n") == 1


@pytest.mark.parametrize("argv", [["-n", "team", "env", "p"], ["env", "p", "-n", "team"], ["env", "-n", "team", "p"]])
def test_kubectls_flags_stand_anywhere(argv: list[str]) -> None:
    """As with kubectl, it does not matter whether flags come before or after the command."""
    assert arguments.parse(argv).namespace == "team"


def test_help_does_not_load_the_clients() -> None:
    """A person who mistypes does not wait for libraries that are needed to talk to a cluster."""
    program = "import sys, cli.__main__, cli.arguments; cli.arguments.parse(['top']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"kubernetes", "aiohttp", "numpy", "asyncio"} & set(loaded)
