"""The HTTP proxy between a process and the API server."""

import os


def of_environment(server: str) -> str:
    """Return the URL of the proxy that the environment names for the URL `server`, or an empty string.

    The variables are curl's: `https_proxy` or `HTTPS_PROXY`, and `no_proxy` for hosts without a proxy.
    """
    scheme, _, rest = server.partition("://")
    named = os.environ.get(f"{scheme}_proxy") or os.environ.get(f"{scheme.upper()}_PROXY") or ""
    if not named:
        return ""
    from urllib.request import proxy_bypass  # noqa: PLC0415 -- slow to load, and rarely needed

    return "" if proxy_bypass(rest.partition("/")[0]) else named
