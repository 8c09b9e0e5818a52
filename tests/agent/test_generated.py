"""The generated messages are those of their descriptions."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["agent/nri", "agent/device_plugin"])
def test_messages_are_generated_from_their_description(folder: str, tmp_path: Path) -> None:
    """A change to messages.proto needs the command in its first lines."""
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, f"{folder}/messages.proto"], cwd=ROOT, check=True, timeout=60)
    for name in ("messages_pb2.py", "messages_pb2.pyi"):
        assert (ROOT / folder / name).read_text() == (tmp_path / folder / name).read_text()
