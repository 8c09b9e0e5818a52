"""A session of `kubectl gpu` with an API server that has a few objects."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from tests.cli.support.http_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.server import BaseHTTPRequestHandler


@contextmanager
def session_on(
    objects: Mapping[str, Any], *, refused: str = "", status: int = 403
) -> Iterator[tuple[Session, list[str]]]:
    """Yield a session, and the paths that were read.

    Args:
        objects: the only object of each list, by the path of the list.
        refused: the path that is answered with `status` instead.
        status: that status; with 200 nothing is refused.
    """
    read: list[str] = []

    def respond(request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        path = urlsplit(request.path).path
        read.append(path)
        if path == refused and status != 200:
            return status, b"{}"
        items = [objects[path]] if path in objects else []
        return 200, json.dumps({"metadata": {}, "items": items}).encode()

    with serving(respond) as url:
        access = Access(url, None, "", {}, "default", "test")
        yield Session(Client(access), "default", access), read
