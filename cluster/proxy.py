"""Which HTTP proxy stands between us and the API server."""

import os


def of_environment(server: str) -> str:
    """Answer the URL of the proxy that the environment names for `server`, a URL; empty where there is none.

    The variables are curl's: `https_proxy` or `HTTPS_PROXY`, and `no_proxy` for whom to ask directly.
    """
    scheme, _, rest = server.partition("://")
    named = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY") or ""
    if not named:
        return ""
    from urllib.request import proxy_bypass  # noqa: PLC0415 -- slow to load, and few have a proxy

    return "" if proxy_bypass(rest.partition("/")[0]) else named
