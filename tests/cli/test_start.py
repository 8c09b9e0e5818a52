"""Commands import only the modules that they need, because imports make them slow."""

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
def test_single_requests_do_not_load_the_asynchronous_client(line: list[str], tmp_path: Path) -> None:
    """Up to the first request nothing heavy is loaded."""
    (tmp_path / "config").write_text(KUBECONFIG)
    run = "from cli.__main__ import main; assert main(sys.argv[1:]) == 1"
    assert not _loaded(run, *line, "--kubeconfig", str(tmp_path / "config")) & (CLIENTS | ARITHMETIC)


@pytest.mark.parametrize("words", [["--help"], ["top", "-o", "xml"], ["completion", "bash"]])
def test_help_and_usage_errors_load_almost_nothing(words: list[str]) -> None:
    """Commands without a cluster load no clients, and help not even YAML."""
    program = (
        "import contextlib\nwith contextlib.suppress(SystemExit):\n from cli.__main__ import main; main(sys.argv[1:])"
    )
    loaded = _loaded(f"exec({program!r})", *words)
    assert not loaded & (CLIENTS | ARITHMETIC | ({"yaml"} if words[0] != "completion" else set()))


def test_completion_of_flags_sends_no_request() -> None:
    """Commands and flags are completed without a kubeconfig."""
    loaded = _loaded("from cli.completion.complete import main; main(['top', '--'])")
    assert not loaded & (CLIENTS | ARITHMETIC | {"yaml", "ssl", "msgspec"})
