"""A tab of a browser, which remembers what went wrong in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Page

AXE = Path(__file__).parents[1] / "vendor" / "axe.min.js"
SERIOUS = frozenset({"serious", "critical"})
PATIENCE_MS = 15_000


class Tab:
    """The tab.

    Attributes:
        page: the page in it, by Playwright.
        errors: what the console has of errors: uncaught ones, files that are missing, violations of the policy.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    async def shows(self, text: str, *, within: str = "body") -> None:
        """Wait until a text can be seen."""
        await self.page.locator(within).get_by_text(text).first.wait_for()

    async def text(self, within: str = "body") -> str:
        """Return all text that can be seen."""
        return await self.page.locator(within).inner_text()

    async def section(self, name: str) -> None:
        """Choose a section by its link."""
        await self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()

    async def findings(self, *rules: str) -> list[str]:
        """Return what axe-core finds that keeps people from using the page, by these rules or by all."""
        if not await self.page.evaluate("'axe' in globalThis"):
            # Evaluated by the debugger, so that the page's policy needs no exception.
            await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        options: dict[str, Any] = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
        result: dict[str, Any] = await self.page.evaluate("(options) => axe.run(document, options)", options)
        return [
            f"{each['id']} ({each['impact']}): {node['html']} {node['failureSummary']}"
            for each in result["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def check(self, *, expected: str = "") -> None:
        """Check that nothing went wrong but what contains `expected`."""
        unexpected = [each for each in self.errors if not expected or expected not in each]
        assert not unexpected, unexpected
