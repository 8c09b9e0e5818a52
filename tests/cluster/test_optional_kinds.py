"""An informer does without a kind that is optional, where the API server does not serve it or forbids it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cluster import informer
from cluster.api import Api
from cluster.dra import DeviceClass
from cluster.errors import ApiError, NotFoundError, UnreachableError
from cluster.informer import Informer
from cluster.resource import DEVICE_CLASSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LISTED = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "c", "resourceVersion": "1"}}]}


class Lists(Api):
    """An API server whose lists have these results, the last one again and again, and whose watches break."""

    def __init__(self, *results: int) -> None:
        self.results = list(results)
        self.lists = 0

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        """Return a list, or fail."""
        self.lists += 1
        status = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if status == 200:
            return msgspec.json.encode(LISTED)
        kind = NotFoundError if status == 404 else ApiError
        raise kind(request=f"{method} {path}", status=status, reason="no", message="not here")

    @asynccontextmanager
    async def open(self, method: str, path: str, **_: Any) -> AsyncIterator[Any]:
        """Break a watch."""
        raise UnreachableError(f"{method} {path}")
        yield


async def until(condition: Any) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 -- whatever the informer does
            await asyncio.sleep(0.005)


@asynccontextmanager
async def watching(api: Lists, *, is_optional: bool = True) -> AsyncIterator[Informer[DeviceClass]]:
    """Run an informer."""
    made = Informer(api, DEVICE_CLASSES, DeviceClass, is_optional=is_optional)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("status", "why"), [(404, "absent"), (403, "forbidden")])
async def test_optional_kind_that_cannot_be_listed_is_empty(
    status: int, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says so once, however often it is asked for again; once it is there, it is watched."""
    monkeypatch.setattr(informer, "_UNAVAILABLE_SECONDS", 0.01)
    api = Lists(status)
    with caplog.at_level(logging.INFO):
        async with watching(api) as made:
            await until(lambda: api.lists > 3)
            assert (made.synced.is_set(), made.unavailable, made.problem, len(made)) == (True, why, "", 0)
            assert len(caplog.records) == 1
            api.results = [200]
            await until(lambda: len(made))
            assert made.unavailable == ""


async def test_known_objects_stay_while_an_optional_kind_is_forbidden() -> None:
    """An API server that has just started forbids everything; what claims have must not become free then."""
    async with watching(Lists(200, 403)) as made:
        await until(lambda: made.unavailable)
        assert made.get("c") is not None


@pytest.mark.parametrize("status", [404, 403])
async def test_other_kinds_are_waited_for(status: int) -> None:
    """Decisions depend on them."""
    async with watching(Lists(status), is_optional=False) as made:
        await until(lambda: made.problem)
        assert not made.synced.is_set()
