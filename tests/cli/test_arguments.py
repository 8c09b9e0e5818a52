import subprocess
import sys

import pytest

from cli import arguments, commands


@pytest.mark.parametrize("argv", [["--help"], *([name, "--help"] for name, _ in commands.every())])
def test_every_command_has_help(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` prints the usage and exits with 0."""
    with pytest.raises(SystemExit) as end:
        arguments.parse(argv)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: kubectl gpu")


@pytest.mark.parametrize(
    ("argv", "message"),
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
def test_usage_error_is_one_line_and_code_2(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code distinguishes it from a failure, and the line names the help."""
    with pytest.raises(SystemExit) as end:
        arguments.parse(argv)
    assert end.value.code == 2
    errors = capsys.readouterr().err
    assert errors.startswith(message)
    assert errors.count("\n") == 1


@pytest.mark.parametrize("argv", [["-n", "team", "env", "p"], ["env", "p", "-n", "team"], ["env", "-n", "team", "p"]])
def test_kubectl_flags_may_follow_the_command(argv: list[str]) -> None:
    """As with kubectl, flags may precede or follow the command."""
    assert arguments.parse(argv).namespace == "team"


def test_help_does_not_load_api_clients() -> None:
    """A user who mistypes a command does not wait for libraries."""
    program = "import sys, cli.__main__, cli.arguments; cli.arguments.parse(['top']); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"kubernetes", "aiohttp", "numpy", "asyncio"} & set(loaded)
