"""Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import importlib.util
import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.ui.support.tabs import Tab

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

# Nothing but the page: no sandbox in a container that has no user namespaces, and no requests of the browser's own.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
)


def missing() -> str:
    """Return why no browser can run here; empty if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright is not installed (pip install -e '.[dev]' -c constraints.txt)"
    if not shutil.which("chromium"):
        return "chromium is not installed (on Debian: apt-get install chromium)"
    return ""


def require() -> None:
    """Skip the test if this machine has no browser; in CI, fail."""
    if why := missing():
        reason = f"no browser: {why}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@asynccontextmanager
async def running() -> AsyncIterator[Browser]:
    """Run a browser without a window."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 -- it may be missing

    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        try:
            yield chromium
        finally:
            await chromium.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, expected: str = "", has_clock: bool = False, **context: object
) -> AsyncIterator[Tab]:
    """Open a URL in a new tab of a new profile; check in the end that there was no error but what is `expected`.

    With `has_clock` the test can let time pass in the tab.
    """
    profile = await browser.new_context(**context)
    try:
        tab = Tab(await profile.new_page())
        if has_clock:
            await tab.page.clock.install()
        await tab.page.goto(url)
        yield tab
        tab.check(expected=expected)
    finally:
        await profile.close()
