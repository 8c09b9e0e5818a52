"""Lists are read in pages, and requests to a busy server are retried."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.objects import NodeMetadata
from cluster.resource import NODES
from tests.cli.support.http_server import serving

Script = Callable[..., Client]


@pytest.fixture
def scripted() -> Iterator[tuple[Script, list[str]]]:
    """A client of a server that sends given responses in order, and the continue tokens that the client sent."""
    tokens: list[str] = []
    with ExitStack() as servers:

        def start(*responses: tuple[int, dict[str, Any]]) -> Client:
            left = list(responses)

            def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
                tokens.append(parse_qs(urlsplit(request.path).query).get("continue", [""])[0])
                status, content = left.pop(0)
                return status, json.dumps(content).encode()

            url = servers.enter_context(serving(respond))
            return Client(Access(url, None, "", {}, "default", "test"))

        yield start, tokens


def _page(*names: str, more: str = "") -> tuple[int, dict[str, Any]]:
    return 200, {"metadata": {"continue": more}, "items": [{"metadata": {"name": name}} for name in names]}


def _names(client: Client) -> list[str]:
    return [node.metadata.name for node in client.list(NODES, NodeMetadata)]


def test_all_pages_are_read(scripted: tuple[Script, list[str]]) -> None:
    """The pages of a large list are joined."""
    start, tokens = scripted
    assert _names(start(_page("a", more="1"), _page("b", more="2"), _page("c"))) == ["a", "b", "c"]
    assert tokens == ["", "1", "2"]


def test_a_list_without_items_is_empty(scripted: tuple[Script, list[str]]) -> None:
    """An API server sends null for an empty list of metadata (1.34.4)."""
    start, _ = scripted
    assert _names(start((200, {"metadata": {}, "items": None}))) == []


def test_expired_list_is_read_again(scripted: tuple[Script, list[str]]) -> None:
    """Pages of the first attempt are not counted twice."""
    start, tokens = scripted
    assert _names(start(_page("a", more="1"), (410, {}), _page("a", more="3"), _page("b"))) == ["a", "b"]
    assert tokens == ["", "1", "", "3"]


def test_busy_server_is_retried(scripted: tuple[Script, list[str]]) -> None:
    """429 means that the server has not carried out the request."""
    start, _ = scripted
    assert _names(start((429, {}), (429, {}), _page("a"))) == ["a"]
