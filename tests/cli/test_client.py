"""Lists come in pages, and a server that is busy or forgets a version is asked again."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.access import Access
from cli.client import Client
from cli.objects import NodeMetadata
from cluster.resource import NODES

Script = Callable[..., Client]


@pytest.fixture
def scripted() -> Iterator[tuple[Script, list[str]]]:
    """Give answers (status and body) in order; the second part has the continue tokens that were sent."""
    servers, tokens = [], []

    def start(*answers: tuple[int, dict[str, Any]]) -> Client:
        left = list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                tokens.append(parse_qs(urlsplit(self.path).query).get("continue", [""])[0])
                status, content = left.pop(0)
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Retry-After", "0")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return Client(Access(f"http://127.0.0.1:{server.server_port}", None, "", {}, "default", "test"))

    yield start, tokens
    for server in servers:
        server.shutdown()
        server.server_close()


def _page(*names: str, more: str = "") -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"continue": more}, "items": [{"metadata": {"name": name}} for name in names]}


def _names(client: Client) -> list[str]:
    return [node.metadata.name for node in client.list(NODES, NodeMetadata)]


def test_all_pages_are_read(scripted: tuple[Script, list[str]]) -> None:
    """A large fleet comes in parts."""
    start, tokens = scripted
    assert _names(start(_page("a", more="1"), _page("b", more="2"), _page("c"))) == ["a", "b", "c"]
    assert tokens == ["", "1", "2"]


def test_a_list_that_the_server_forgot_is_read_anew(scripted: tuple[Script, list[str]]) -> None:
    """No page is counted twice."""
    start, tokens = scripted
    assert _names(start(_page("a", more="1"), (410, {}), _page("a", more="3"), _page("b"))) == ["a", "b"]
    assert tokens == ["", "1", "", "3"]


def test_a_busy_server_is_asked_again(scripted: tuple[Script, list[str]]) -> None:
    """429 means that nothing was done yet."""
    start, _ = scripted
    assert _names(start((429, {}), (429, {}), _page("a"))) == ["a"]
