"""The files of the page, as they are in the repository: there is no build step, and nothing comes from elsewhere."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

STATIC: Final = Path(__file__).parent / "static"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
HEADERS: Final = {
    # Only what this listener serves is loaded, and nothing that is written into the page is run.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""The headers of every response of the page."""


class Asset(msgspec.Struct, frozen=True):
    """One file: its content, its type, and a tag that changes with the content."""

    content: bytes
    content_type: str
    tag: str


def read_assets() -> dict[str, Asset]:
    """Return the files by their paths relative to the page."""
    return {
        path.relative_to(STATIC).as_posix(): _asset(path)
        for path in sorted(STATIC.rglob("*"))
        if path.is_file() and path.suffix in _TYPES
    }


def respond(request: web.Request, assets: Mapping[str, Asset]) -> web.Response:
    """Return the file that a request names, `index.html` without a name, or 304 if the browser has it already."""
    name = request.match_info["file"] or "index.html"
    asset = assets.get(name)
    if asset is None:
        return web.Response(status=404, text="the page has no such file")
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == asset.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=asset.content, headers={**headers, "Content-Type": asset.content_type})


def _asset(path: Path) -> Asset:
    content = path.read_bytes()
    return Asset(content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:24]}"')
