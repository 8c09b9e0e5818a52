"""`kubectl gpu report`: GPU-hours from Prometheus, and for how much of the time they are known."""

import argparse
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.errors import CommandError, UsageError
from cli.kube.access import Access
from cli.kube.client import Client
from cli.kube.session import Session
from cli.report import report

Serve = Callable[..., str]


class Server(ThreadingHTTPServer):
    """A server with Prometheus' API.

    Attributes:
        seen: the path and the query of each request.
        body: what it answers; if it is a function, what that returns for the query.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str]] = []
        self.status = 200
        self.body: Any = b""


class Handler(BaseHTTPRequestHandler):
    """The responses to queries."""

    server: Server

    def do_GET(self) -> None:
        """Respond to a query."""
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)["query"][0]
        self.server.seen.append((parts.path, query))
        body = self.server.body(query) if callable(self.server.body) else self.server.body
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve while a test runs."""
    made = Server()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def vector(*elements: tuple[dict[str, str], str]) -> bytes:
    """Return an instant vector as Prometheus sends it."""
    result = [{"metric": labels, "value": [1790000000.5, value]} for labels, value in elements]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def answering(known: str = "1") -> Callable[[str], bytes]:
    """Return a function that answers both queries."""

    def answer(query: str) -> bytes:
        if "leading" in query:
            return vector(({}, known))
        return vector(
            ({"namespace": "small", "queue": ""}, "0.5"),
            ({"namespace": "team", "queue": "research"}, "35.254"),
            ({"namespace": "", "queue": ""}, "1"),
            ({"namespace": "gone", "queue": ""}, "0"),
            ({"namespace": "odd", "queue": ""}, "NaN"),
        )

    return answer


def url(server: Server) -> str:
    """Return the URL of a server."""
    return f"http://127.0.0.1:{server.server_address[1]}"


def run(server: Server, *, prometheus: str | None = None, **flags: Any) -> int:
    """Run the command, with a session whose API server is the same server."""
    access = Access(url(server), None, "", {}, "default", "test")
    arguments = argparse.Namespace(
        **{
            "since": "24h",
            "prometheus": url(server) if prometheus is None else prometheus,
            "cluster_label": "",
            "namespace": "",
            "all_namespaces": False,
            "output": "table",
            "no_headers": False,
            **flags,
        }
    )
    return report.run(Session(Client(access), "default", access), arguments)


def test_largest_consumers_come_first(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Namespaces without hours have no row; those beyond the bound of the metric have no name."""
    server.body = answering()
    assert run(server) == 0
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines()] == [
        ["NAMESPACE", "QUEUE", "GPU-HOURS"],
        ["team", "research", "35.25"],
        ["<others>", "<none>", "1.00"],
        ["small", "<none>", "0.50"],
    ]
    assert shown.err == ""


def test_time_without_a_leader_is_said(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """What pods held then is in no sum."""
    server.body = answering("0.75")
    run(server, output="json")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["knownRatio"] == 0.75
    assert "has read a leading scheduler for 75% of the last 24h" in shown.err


def test_queries_select_time_namespace_and_cluster(server: Server) -> None:
    """The ratio is that of the cluster, whatever the namespace."""
    server.body = answering()
    run(server, since="7d", namespace="team", cluster_label="eu-1")
    hours, known = (query for _, query in server.seen)
    assert 'tranche_allocated_card_seconds_total{cluster="eu-1",namespace="team"}[7d]' in hours
    assert 'tranche_scheduler_leading{cluster="eu-1"}' in known


def test_prometheus_is_reached_through_the_api_server(server: Server) -> None:
    """As a Service, so that nothing has to be exposed."""
    server.body = answering()
    run(server, prometheus="monitoring/prometheus-operated:9090")
    assert server.seen[0][0] == ("/api/v1/namespaces/monitoring/services/prometheus-operated:9090/proxy/api/v1/query")


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, b'{"kind":"Status","message":"forbidden"}', "status 403"),
        (422, b'{"status":"error","error":"bad range"}', "bad range"),
        (200, b"<html>", "<html>"),
        (200, b"\xff", "status 200"),
        (200, b'{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]}]}}', "did not answer"),
        (200, b"", "no message"),
    ],
)
def test_answer_that_is_no_vector_is_an_error(server: Server, status: int, body: bytes, message: str) -> None:
    """It names the place, and what came."""
    server.status, server.body = status, body
    with pytest.raises(CommandError, match=message) as caught:
        run(server)
    assert url(server) in str(caught.value)


@pytest.mark.parametrize("place", ["", "prometheus", "a/b/c", "ftp://x", "a/b:9090/../c"])
def test_prometheus_must_be_named(server: Server, place: str) -> None:
    """By a URL or a Service; the error has an example."""
    with pytest.raises(CommandError, match="monitoring/prometheus-operated:9090"):
        run(server, prometheus=place)


@pytest.mark.parametrize(
    "flags", [{"since": "24"}, {"since": "0h"}, {"since": "1h] or x["}, {"namespace": 'a"} or b{'}]
)
def test_flags_cannot_change_the_query(server: Server, flags: dict[str, str]) -> None:
    """Durations and names only."""
    with pytest.raises(UsageError):
        run(server, **flags)


def test_unreachable_prometheus_is_an_error(server: Server) -> None:
    """Of one line."""
    with pytest.raises(CommandError, match="cannot be reached"):
        run(server, prometheus="http://127.0.0.1:9")


def test_no_hours_are_noted(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty table alone would not say why."""
    server.body = vector()
    run(server, namespace="team")
    assert "no GPU-hours of the last 24h in namespace team" in capsys.readouterr().err
