"""Light commands load light modules: what makes a command slow is what it imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = frozenset({"kubernetes", "aiohttp", "asyncio", "urllib3", "requests", "pydantic", "cryptography"})
ARITHMETIC = frozenset({"numpy"})

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def _loaded(program: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; print(*sys.modules, file=sys.__stdout__)", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("line", [["env", "p"], ["cordon", "u"], ["top"], ["top", "--cards"]])
def test_a_command_that_asks_once_loads_no_client_of_processes_that_stay(line: list[str], tmp_path: Path) -> None:
    """From the command line to the first request, which nobody answers here; only who counts cards loads arithmetic."""
    (tmp_path / "config").write_text(KUBECONFIG)
    run = "from cli.__main__ import main; assert main(sys.argv[1:]) == 1"
    heavy = _loaded(run, *line, "--kubeconfig", str(tmp_path / "config")) & (CLIENTS | ARITHMETIC)
    assert heavy <= (ARITHMETIC if line[0] == "top" else set())


@pytest.mark.parametrize("words", [["--help"], ["top", "-o", "xml"], ["completion", "bash"]])
def test_help_mistakes_and_scripts_load_next_to_nothing(words: list[str]) -> None:
    """What needs no cluster does not wait for one, not even for msgspec and YAML."""
    program = (
        "import contextlib\nwith contextlib.suppress(SystemExit):\n from cli.__main__ import main; main(sys.argv[1:])"
    )
    loaded = _loaded(f"exec({program!r})", *words)
    assert not loaded & (CLIENTS | ARITHMETIC | ({"yaml"} if words[0] != "completion" else set()))


def test_completion_of_the_command_line_asks_nobody() -> None:
    """A word of ours is offered without looking at a kubeconfig."""
    loaded = _loaded("from cli.complete import main; main(['top', '--'])")
    assert not loaded & (CLIENTS | ARITHMETIC | {"yaml", "ssl", "msgspec"})
