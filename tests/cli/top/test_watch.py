"""`kubectl gpu top --watch` against a real API server: it prints each change, and ends on Ctrl-C or a closed pipe."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from allocation.names import CORDON
from lab import wait
from lab.client import client
from lab.kubeconfig import service_account_kubeconfig
from lab.layout import Layout
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[3]
TEAM, NODE, CARD = "cli-team", "cli-1", "GPU-cli-1-0"
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(team: Layout) -> Iterator[Start]:
    """Start `top --watch` for one node; processes that still run at the end are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*arguments: str, stdout: int) -> "subprocess.Popen[bytes]":
        kubeconfig = service_account_kubeconfig(team, namespace=TEAM, name="viewer")
        line = ["top", NODE, "--watch", "--kubeconfig", str(kubeconfig), *arguments]
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", *line],
            cwd=ROOT,
            stdout=stdout,
            stderr=subprocess.PIPE,
            # A background run ignores Ctrl-C, and its children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )
        started.append(process)
        return process

    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: None}}})
    yield run
    for process in started:
        process.kill()
        process.communicate()
    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: None}}})


def _documents(text: str) -> list[Any]:
    decoder, found, position = json.JSONDecoder(), [], 0
    while text[position:].strip():
        position += len(text[position:]) - len(text[position:].lstrip())
        try:
            document, position = decoder.raw_decode(text, position)
        except ValueError:
            break  # the rest is being written
        found.append(document)
    return found


def test_each_change_is_one_document(team: Layout, start: Start, tmp_path: Path) -> None:
    """The first document is printed at once, the next only after a change; Ctrl-C ends the command silently."""
    output = tmp_path / "output"
    with output.open("wb") as file:
        process = start("-o", "json", stdout=file.fileno())

    def cordoned() -> list[bool]:
        return [each["nodes"][0]["cards"][0]["cordoned"] for each in _documents(output.read_text())]

    wait.until(lambda: cordoned() == [False], what="the first document", timeout_s=PATIENCE_S)
    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: str(CARD)}}})
    wait.until(lambda: cordoned() == [False, True], what="the change", timeout_s=PATIENCE_S)
    client(team).patch("node", NODE, {"metadata": {"annotations": {"unrelated": "1"}}})
    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: None}}})
    wait.until(lambda: cordoned() == [False, True, False], what="the change back", timeout_s=PATIENCE_S)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_each_change_is_one_table(team: Layout, start: Start, tmp_path: Path) -> None:
    """Above each is the time, and an empty line separates the tables."""
    output = tmp_path / "output"
    with output.open("wb") as file:
        start(stdout=file.fileno())
    wait.until(lambda: "Unhealthy" in output.read_text(), what="the first table", timeout_s=PATIENCE_S)
    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: str(CARD)}}})
    wait.until(lambda: "Healthy,Cordoned" in output.read_text(), what="the second table", timeout_s=PATIENCE_S)
    lines = output.read_text().splitlines()
    assert [line.split()[:1] for line in lines if not STAMP.fullmatch(line)] == [
        ["NODE"],
        [NODE],
        [NODE],
        [],
        ["NODE"],
        [NODE],
        [NODE],
    ]
    assert [number for number, line in enumerate(lines) if STAMP.fullmatch(line)] == [0, 5]


def test_it_ends_when_its_output_is_closed(team: Layout, start: Start) -> None:
    """After the reader has closed the pipe, the next change ends the command silently."""
    reader, writer = os.pipe()
    process = start("--no-headers", stdout=writer)
    os.close(writer)
    assert os.read(reader, 1)
    os.close(reader)
    client(team).patch("node", NODE, {"metadata": {"annotations": {CORDON: str(CARD)}}})
    assert process.wait(PATIENCE_S) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
