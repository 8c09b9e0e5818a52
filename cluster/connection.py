"""An authenticated session with the API server, however it was opened."""

from collections.abc import Awaitable, Callable

import aiohttp


class Connection:
    """An authenticated session with one API server."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        server: str,
        headers: Callable[[], Awaitable[dict[str, str]]],
        namespace: str,
    ) -> None:
        self.session = session
        self.server = server
        """The API server's base URL, without a trailing slash."""
        self.headers = headers
        """Returns the authentication headers; raises ClusterError if the credentials cannot be read."""
        self.namespace = namespace
        """The default namespace: that of the context, or in a pod that of the pod."""
