"""A local HTTP server with given responses, and the kubeconfig of a cluster that it stands for."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

Respond = Callable[[http.server.BaseHTTPRequestHandler], tuple[int, bytes]]
"""Returns the status and the body for a request."""


@contextmanager
def serving(respond: Respond) -> Iterator[str]:
    """Serve on a free port, and yield the base URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, body = respond(self)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_GET  # noqa: N815 -- names of http.server

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def kubeconfig(folder: Path, url: str, *, namespace: str = "", token: str = "") -> str:
    """Write the kubeconfig of the cluster at `url`; return its path."""
    file = folder / "kubeconfig"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
        "current-context": "c",
    }
    file.write_text(yaml.safe_dump(content))
    return str(file)
