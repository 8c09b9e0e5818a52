"""Refuses writes that another site makes a reader's browser send.

The page has no cookies, but a proxy in front that logs people in has: it adds their token to what the browser sends.
"""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from scheduler.api.responses import HttpError

_JSON: Final = "application/json"
"""A form cannot send it, and a script of another site only after a request that this server does not permit."""


def require_same_origin(request: web.Request) -> None:
    """Check that the page has sent a request, or no browser.

    Browsers say which site has sent it in Sec-Fetch-Site, which no script can set, and those that do not in Origin (the
    rules of CrossOriginProtection in Go's net/http).

    Raises:
        HttpError: 415, the body is not declared as JSON; 403, another site has sent it.
    """
    if request.headers.get("Content-Type", "") != _JSON:
        raise HttpError(415, f"the body must have Content-Type {_JSON}")
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    is_ours = site == "same-origin" if site is not None else origin is None or urlsplit(origin).netloc == request.host
    if not is_ours:
        raise HttpError(403, f"this request comes from another site ({origin or site}); use the page itself")
