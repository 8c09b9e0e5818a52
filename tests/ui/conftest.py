"""A real browser for the tests of the page."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.scheduler.ui.pages import serving
from tests.ui.support import browsers
from tests.ui.support.tabs import Tab

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from tests.scheduler.ui.pages import Site

Open = Callable[..., AbstractAsyncContextManager[Tab]]
"""Opens a URL in a new tab of a new profile, and checks in the end that there was no error in it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all asynchronous tests with a browser on the event loop of the browser, which is started once."""
    for item in items:
        if item.get_closest_marker("browser") and inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests."""
    browsers.require()
    async with browsers.running() as chromium:
        yield chromium


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Site]:
    """The page of a cluster with two nodes, on an API server in memory."""
    async with serving() as site:
        yield site


@pytest.fixture
def opened(browser: Browser) -> Open:
    """Open pages in the browser."""
    return partial(browsers.opened, browser)
