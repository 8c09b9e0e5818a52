"""A proxy to the API server is used, whether the kubeconfig or the environment names it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from cluster import proxy
from cluster.api import Api
from cluster.connect import connect
from cluster.errors import UnreachableError

if TYPE_CHECKING:
    from pathlib import Path

SERVER = "https://kubernetes.invalid:6443"


@pytest.fixture(autouse=True)
def _no_proxy_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_proxy_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with curl, it depends on the scheme, in either case of letters, and not on hosts in no_proxy."""
    assert proxy.of_environment(SERVER) == ""
    monkeypatch.setenv("HTTPS_PROXY", "http://there:3128")
    assert proxy.of_environment(SERVER) == "http://there:3128"
    assert proxy.of_environment("http://kubernetes.invalid") == ""
    monkeypatch.setenv("no_proxy", "kubernetes.invalid")
    assert proxy.of_environment(SERVER) == ""
    assert proxy.of_environment("https://elsewhere.invalid") == "http://there:3128"


@pytest.mark.parametrize("named", ["kubeconfig", "environment"])
async def test_requests_use_the_proxy(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process requests a tunnel, so that only the proxy needs to resolve the name of the API server."""
    requested: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readline())
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    cluster = {"server": SERVER} | ({"proxy-url": url} if named == "kubeconfig" else {})
    if named == "environment":
        monkeypatch.setenv("HTTPS_PROXY", url)
    file = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file.write_text(json.dumps(config))
    async with server, connect(program="tranche-test", kubeconfig=str(file)) as connection:
        with pytest.raises(UnreachableError):
            await Api(connection, timeout=10).request("GET", "/version")
    assert requested == [b"CONNECT kubernetes.invalid:6443 HTTP/1.1\r\n"]
