"""What a leader writes with, for tests."""

from collections.abc import Callable
from typing import cast

from cluster.api import Api
from scheduler.fenced_api import FencedApi


def fenced(
    api: object,
    *,
    token: str = "1/x",  # noqa: S107 -- no secret
    timeout_seconds: float = 1,
    is_trusted: Callable[[], bool] = lambda: True,
) -> FencedApi:
    """Return the API server for the writes of a leader; `api` may be a stand-in."""
    return FencedApi(cast("Api", api), token=token, timeout_seconds=timeout_seconds, is_trusted=is_trusted)
