import errno
import subprocess
import sys

import pytest

from cli import streams

PROGRAM = """
import argparse, sys
from cli import commands, process
import cli.completion.scripts as command
{platform}
command.run = lambda _: (_ for _ in ()).throw({error})
sys.exit(process.run(argparse.Namespace(module="cli.completion.scripts", asks_cluster=False)))
"""


@pytest.mark.parametrize(
    ("platform", "error", "unread"),
    [
        ("linux", BrokenPipeError(), True),
        ("win32", OSError(errno.EINVAL, "Invalid argument"), True),
        ("linux", OSError(errno.EINVAL, "Invalid argument"), False),
        ("win32", OSError(errno.ENOSPC, "No space left"), False),
    ],
)
def test_an_ended_reader_is_recognised(
    monkeypatch: pytest.MonkeyPatch, platform: str, error: OSError, *, unread: bool
) -> None:
    """Windows has no broken pipes: a write to one fails with EINVAL."""
    monkeypatch.setattr(sys, "platform", platform)
    assert streams.is_unread(error) == unread


@pytest.mark.parametrize(
    ("platform", "error", "code"),
    [("", "BrokenPipeError()", 141), ("sys.platform = 'win32'", "OSError(22, 'x')", 141), ("", "OSError(22, 'x')", 1)],
)
def test_output_that_nobody_reads_ends_the_command(platform: str, error: str, code: int) -> None:
    """The exit code is that of a shell's pipe, and nothing is printed; another error is a bug, with its place."""
    program = PROGRAM.format(platform=platform, error=error)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("error: unexpected OSError" if code == 1 else "")
    assert bool(done.stderr) == (code == 1)
