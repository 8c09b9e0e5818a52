"""`kubectl gpu ui`: the page of the leading scheduler through a forwarded port."""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from cli import ui
from cli.arguments import parse
from cli.errors import CommandError
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.port_forward import PortForward
from cli.kube.session import Session, connected
from scheduler.fence import NAME
from tests.cli.support import ui_command
from tests.cli.support.forwarding import TEXT, Forwarding, forwarding
from tests.cli.support.http_server import kubeconfig
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def server() -> AsyncIterator[Forwarding]:
    """Serve while a test runs."""
    async with forwarding() as made:
        yield made


async def failure(server: Forwarding, *flags: str) -> str:
    """Return the error with which the command ends."""
    access = Access(server.url, None, "", {}, "default", "test")
    arguments = parse(["ui", "--no-browser", *flags])
    with pytest.raises(CommandError) as raised:
        await asyncio.to_thread(ui.run, Session(Client(access), "default", access), arguments)
    return str(raised.value)


async def test_page_is_forwarded_until_interrupted(server: Forwarding, tmp_path: Path) -> None:
    """The URL is printed, the whole page comes through, and Ctrl-C ends the command with code 130 and no message."""
    async with ui_command.running(kubeconfig(tmp_path, server.url), tmp_path) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert url.endswith("/ui/")
        assert await ui_command.load(url) == TEXT * 1000
        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
        assert process.returncode == 130
    assert set(server.asked) == {("scheduler-a", str(ui.PORT))}


async def test_forward_follows_the_leader(server: Forwarding, tmp_path: Path) -> None:
    """A new connection goes to the pod that leads then; without a leader the reason is noted once."""
    async with ui_command.running(kubeconfig(tmp_path, server.url), tmp_path) as (process, url):
        server.holder = "scheduler-b-0badcafe"
        await ui_command.load(url)
        assert server.asked[-1][0] == "scheduler-b"
        server.holder = ""
        for _ in range(2):
            with pytest.raises(aiohttp.ClientError):
                await ui_command.load(url)
        server.holder = "scheduler-c-0badcafe"
        assert await ui_command.load(url) == TEXT * 1000
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert errors.decode().count("note: ") == errors.decode().count("no scheduler leads") == 1


async def test_a_browser_that_goes_is_no_failure(server: Forwarding) -> None:
    """It may close its connection while the page still sends."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    request = asyncio.StreamReader()
    request.feed_data(b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    async with (
        connected(Access(server.url, None, "", {}, "default", "test")) as connection,
        await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0) as local,
    ):
        _, browser = await asyncio.open_connection(*local.sockets[0].getsockname())
        page = await accepted.get()
        browser.transport.abort()
        async with asyncio.timeout(PATIENCE_S):
            await PortForward(connection, namespace="tranche-system", port=ui.PORT).carry("scheduler-a", request, page)
    assert server.asked == [("scheduler-a", str(ui.PORT))]


async def test_page_that_is_open_moves_to_the_new_leader(server: Forwarding, tmp_path: Path) -> None:
    """Its connection to a replica that stands by now is closed, so that the page opens another one."""
    async with (
        ui_command.running(kubeconfig(tmp_path, server.url), tmp_path) as (_, url),
        aiohttp.ClientSession() as browser,
        browser.get(f"{url}events") as response,
    ):
        assert await response.content.readexactly(len(TEXT)) == TEXT.encode()
        server.holder = "scheduler-b-0badcafe"
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.content.read()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"holder": None}, "Lease tranche-system/tranche-scheduler does not exist: no scheduler runs"),
        ({"holder": ""}, "has no holder: no scheduler leads"),
        ({"lease_status": 403}, "get leases in namespace tranche-system: forbidden (refused); ask an administrator"),
        ({"forward_status": 403}, "create pods/portforward in namespace tranche-system: forbidden; ask an"),
        ({"forward_status": 404}, "pod tranche-system/scheduler-a: port 8446 cannot be forwarded: it does not exist"),
        ({"forward_status": 502}, "the API server responded 502"),
        ({"error": "connection refused"}, "port 8446 cannot be forwarded: connection refused"),
        ({"page_status": 404}, "the scheduler does not serve its page (404): set scheduler.ui.enabled"),
    ],
)
async def test_failure_names_the_object_and_the_next_step(
    server: Forwarding, change: dict[str, object], words: str
) -> None:
    """The command ends before it opens a browser that would show nothing."""
    for name, value in change.items():
        setattr(server, name, value)
    assert words in await failure(server)


async def test_port_in_use_is_named(server: Forwarding) -> None:
    """And the flag that chooses another."""
    taken = server.url.rpartition(":")[2]
    said = await failure(server, "--port", taken)
    assert said == f"port {taken} of 127.0.0.1 cannot be used: {os.strerror(errno.EADDRINUSE)}; choose another --port"


@pytest.mark.parametrize("port", ["-1", "65536", "x", ""])
def test_port_is_checked(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A port that cannot be one is a wrong command line."""
    with pytest.raises(SystemExit) as ended:
        parse(["ui", f"--port={port}"])
    assert ended.value.code == 2
    assert "it must be an integer from 0 to 65535" in capsys.readouterr().err


async def test_browser_is_opened_only_on_a_desktop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Elsewhere a browser in the terminal would take over the screen, and cannot show the page."""
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ui._DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    await ui._open_browser("http://page")
    assert (opened, "open the URL" in capsys.readouterr().err) == ([], True)
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    await ui._open_browser("http://page")
    assert (opened, capsys.readouterr().err) == (["http://page"], "")


def test_lease_is_the_schedulers() -> None:
    """The command does not import the scheduler for a name."""
    assert ui.LEASE == NAME
    assert isinstance(parse(["ui"]), argparse.Namespace)
