"""The page of a whole term on an API server in memory, over real HTTP."""

from collections.abc import AsyncIterator

import pytest

from tests.scheduler.ui.pages import Site, serving


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Serve the page of a cluster with two nodes while the test runs."""
    async with serving() as site:
        yield site
