"""`kubectl gpu ui` as a process."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[3]


@asynccontextmanager
async def running(kubeconfig: str, folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run the command in a folder, and yield it with the URL that it prints; in the end kill it, if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "ui", "--no-browser", "--kubeconfig", kubeconfig),
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert process.stdout is not None
            line = (await process.stdout.readline()).decode()
            assert line, await process.communicate()
            yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def load(url: str) -> str:
    """Load the page over a connection of its own."""
    async with aiohttp.ClientSession() as browser, browser.get(url) as response:
        return await response.text()
