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
        anonymous: aiohttp.ClientSession | None = None,
    ) -> None:
        self.session = session
        self.server = server
        """The API server's base URL, without a trailing slash."""
        self.headers = headers
        """Returns the authentication headers; raises ClusterError if the credentials cannot be read."""
        self.namespace = namespace
        """The default namespace: that of the context, or in a pod that of the pod."""
        self._anonymous = anonymous

    def as_user(self, token: str) -> "Connection":
        """Return a connection with the identity of a bearer token's user, and nothing of this process's own.

        The API server prefers a client certificate to a token, so the sessions of the two are separate.
        """
        if self._anonymous is None:
            raise ValueError("this connection was opened without a session for the tokens of others")

        async def headers() -> dict[str, str]:
            return {"Authorization": f"Bearer {token}"}

        return Connection(session=self._anonymous, server=self.server, headers=headers, namespace=self.namespace)
