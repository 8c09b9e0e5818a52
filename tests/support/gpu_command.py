"""`kubectl gpu` in the process of a test: the start of another one would take longer than most commands do."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING
from unittest.mock import patch

from cli.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def run(kubeconfig: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command as the user of a kubeconfig, until it ends; one at a time."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="ascii")
    with patch.multiple(sys, stdin=given, stdout=output, stderr=errors):
        try:
            code = main([*arguments, f"--kubeconfig={kubeconfig}"])
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        printed, failures = (_text(stream) for stream in (sys.stdout, sys.stderr))
    return subprocess.CompletedProcess([*arguments], code, printed, failures)


def _text(stream: object) -> str:
    """Return what was written to a stream, as UTF-8; the command has replaced the one that it was given."""
    assert isinstance(stream, io.TextIOWrapper)
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
