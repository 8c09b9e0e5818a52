"""The page in a real browser, on a whole term over an API server in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from allocation.inventory import Card
from tests.scheduler.ui.exposing import exposing, proxied

if TYPE_CHECKING:
    from tests.scheduler.ui.pages import Site
    from tests.ui.conftest import Open
    from tests.ui.support.tabs import Tab

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
MARKUP = "<img src=x onerror='globalThis.owned = 1'>"
DETAILS = {"a node": "node/n1", "a card": "card/n1/GPU-n1-0", "a pod": "pod/default/waits"}
"""What is reached from rows, by its address."""
UNAUTHORISED = "status of 401"
"""What the console says of a response that the page handles."""


async def sections(tab: Tab) -> list[str]:
    """Return the names of the sections in the navigation."""
    return await tab.page.get_by_role("navigation").get_by_role("link").all_inner_texts()


async def go(tab: Tab, name: str) -> None:
    """Go to a section or to one of the details, and wait until its rows have come."""
    if name in DETAILS:
        await tab.page.evaluate("(address) => { location.hash = `#/${address}`; }", DETAILS[name])
    else:
        await tab.section(name)
    await tab.page.get_by_text("Reading").wait_for(state="detached")


async def sign_in(tab: Tab, user: str) -> None:
    """Give the page the token of a user."""
    await tab.page.get_by_label("Token").fill(user)
    await tab.page.keyboard.press("Enter")


async def test_page_follows_the_cluster_without_reload(site: Site, opened: Open) -> None:
    """A node that joins is counted on the page that is open."""
    async with opened(f"{site.url}ui/") as tab:
        await tab.shows("2 nodes")
        site.cluster.node("n3", Card("GPU-n3-0", 0, 1000, slots=4))
        await tab.shows("3 nodes")


async def test_page_says_when_the_replica_does_not_lead(site: Site, opened: Open) -> None:
    """The banner comes and goes without a reload, and what was shown last stays."""
    async with opened(f"{site.url}ui/", has_clock=True) as tab:
        await tab.shows("2 nodes")
        site.replica, site.decides = msgspec.structs.replace(site.replica, state="standby", leader="other"), False
        await tab.shows("other leads.", within="[role=status]")
        # A Service may have led it to the wrong replica, so it tries again, and the banner stays.
        async with tab.page.expect_request(lambda request: "/ui/events" in request.url):
            await tab.page.clock.fast_forward(3000)
        await tab.shows("other leads.", within="[role=status]")
        site.replica, site.decides = msgspec.structs.replace(site.replica, state="deciding"), True
        await tab.page.get_by_text("other leads.").wait_for(state="detached")
        site.cluster.node("n3")
        await tab.shows("3 nodes")


async def test_page_goes_on_after_an_interruption(opened: Open) -> None:
    """While nothing answers, the banner says so and what was shown stays; afterwards nothing is missing."""
    async with exposing() as exposed, proxied(exposed.url) as url, opened(url, expected="status of") as tab:
        await sign_in(tab, "red")
        await tab.shows("2 nodes")
        exposed.api.is_away = True
        exposed.clock.now += 301
        exposed.cluster.node("n3")
        await tab.shows("the API server could not be asked about the reader", within="[role=status]")
        await tab.shows("2 nodes")
        exposed.api.is_away = False
        await tab.shows("3 nodes")
        assert not await tab.page.locator("[role=status]").inner_text()


async def test_what_tenants_and_drivers_write_is_only_text(site: Site, opened: Open) -> None:
    """Markup in a name is shown as it is, and nothing of it runs."""
    site.cluster.node("n3", Card("GPU-n3-0", 0, 1000, model=MARKUP))
    async with opened(f"{site.url}ui/#/node/n3") as tab:
        await tab.shows(MARKUP)
        assert await tab.page.evaluate("globalThis.owned") is None


async def test_sections_are_accessible(site: Site, opened: Open) -> None:
    """axe-core finds nothing serious in any section, and no contrast that is too low in the dark either."""
    site.cluster.pod("waits", memory=5000)
    site.cluster.pod("runs")
    async with opened(f"{site.url}ui/", reduced_motion="reduce") as tab:
        await tab.shows("2 nodes")
        found: dict[str, list[str]] = {}
        for name in [*await sections(tab), *DETAILS]:
            await go(tab, name)
            await tab.page.emulate_media(color_scheme="light")
            found[name] = await tab.findings()
            await tab.page.emulate_media(color_scheme="dark")
            found[f"{name} in the dark"] = await tab.findings("color-contrast")
        assert {name: each for name, each in found.items() if each} == {}


async def test_sections_are_reached_by_keyboard(site: Site, opened: Open) -> None:
    """The first Tab stops at the link that skips the navigation, then come the sections; arrow keys find a node."""
    async with opened(f"{site.url}ui/") as tab:
        await tab.shows("2 nodes")
        await tab.page.keyboard.press("Tab")
        await tab.page.keyboard.press("Enter")
        await tab.page.locator("#content:focus").wait_for()
        for name in await sections(tab):
            await tab.page.get_by_role("navigation").get_by_role("link", name=name, exact=True).focus()
            await tab.page.keyboard.press("Enter")
            await tab.page.get_by_role("heading", level=1, name=name, exact=True).wait_for()
            await tab.page.locator("#content:focus").wait_for()
        await go(tab, "Fleet")
        await tab.page.locator("canvas").focus()
        for key in ("ArrowRight", "Enter"):
            await tab.page.keyboard.press(key)
        await tab.shows("GPU-n2-0")


async def test_page_fits_a_phone(site: Site, opened: Open) -> None:
    """No section is wider than the screen."""
    site.cluster.pod("waits", memory=5000)
    async with opened(f"{site.url}ui/", viewport=PHONE) as tab:
        await tab.shows("2 nodes")
        for name in [*await sections(tab), *DETAILS]:
            await go(tab, name)
            width = await tab.page.evaluate("document.documentElement.scrollWidth")
            assert width <= PHONE["width"], name


async def test_page_works_behind_the_proxy_of_the_api_server(opened: Open) -> None:
    """Under its path, where nothing sends a token, the page asks for one, and then shows what its user may see."""
    async with exposing() as exposed, proxied(exposed.url) as url, opened(url, expected=UNAUTHORISED) as tab:
        await tab.shows("a bearer token is needed")
        assert await tab.findings() == []
        await sign_in(tab, "red")
        await tab.shows("2 nodes")
        kept = "[document.cookie, localStorage.length, sessionStorage.length, location.href]"
        assert await tab.page.evaluate(kept) == ["", 0, 0, url]


async def test_page_says_which_right_is_missing(opened: Open) -> None:
    """And opens by itself when it is granted."""
    async with exposing() as exposed, proxied(exposed.url) as url, opened(url, expected="status of 40") as tab:
        await sign_in(tab, "stranger")
        await tab.shows("stranger cannot get /ui/events")
        exposed.api.rights["stranger"] = {("get", "/ui/events")}
        exposed.clock.now += 61
        await tab.shows("2 nodes")


async def test_tenants_see_their_own_pods_on_the_page(opened: Open) -> None:
    """A pod of another namespace is in no list, and has no page; what is one's own says why it waits."""
    async with exposing() as exposed, proxied(exposed.url) as url:
        for name in ("red", "blue"):
            exposed.cluster.pod(f"{name}-waits", namespace=name, memory=5000)
        async with opened(f"{url}#/waiting", expected="status of 40") as tab:
            await sign_in(tab, "red")
            await tab.shows("red-waits")
            assert "blue" not in await tab.text()
            await tab.page.get_by_role("link", name="red/red-waits").click()
            await tab.shows("CardInsufficientMemory")
            await tab.page.evaluate("location.hash = '#/pod/blue/blue-waits'")
            await tab.shows("There is no such pod, or it is not shown to you.")
            exposed.cluster.pod("blue-second", namespace="blue", memory=5000)
            exposed.cluster.pod("red-second", namespace="red", memory=5000)
            await tab.section("Waiting")
            await tab.shows("red-second")
            assert "blue" not in await tab.text("main")


async def test_card_is_cordoned_by_an_operator_only(opened: Open) -> None:
    """An operator cordons and uncordons with the keyboard, and sees it; a tenant and an administrator see no button."""
    async with exposing() as exposed, proxied(exposed.url) as url:
        exposed.api.rights["operator"] = {("get", "/ui/events"), ("patch", "nodes/n1")}
        for user in ("red", "blue", "administrator"):
            async with opened(f"{url}#/node/n1", expected=UNAUTHORISED) as tab:
                async with tab.page.expect_response(lambda response: response.url.endswith("/cordon")):
                    await sign_in(tab, user)
                await tab.shows("GPU-n1-0")
                assert await tab.page.get_by_role("button", name="Cordon").count() == 0
        async with opened(f"{url}#/node/n1", expected=UNAUTHORISED) as tab:
            await sign_in(tab, "operator")
            for done, undo in (("Cordon card 0", "Uncordon card 0"), ("Uncordon card 0", "Cordon card 0")):
                button = tab.page.get_by_role("button", name=done, exact=True)
                await button.focus()
                await tab.page.keyboard.press("Enter")
                await tab.page.get_by_role("button", name=undo, exact=True).wait_for()
            exposed.api.granted = lambda _user: set()
            await tab.page.get_by_role("button", name="Cordon card 1").click()
            await tab.shows("the API server refused the change", within="[role=alert]")
            assert await tab.findings() == []
            tab.errors = [each for each in tab.errors if "status of 403" not in each]
        assert {user for user, _, _ in exposed.api.sent_by_users} == {"operator"}


async def test_tenants_ask_what_if_in_their_own_namespace(opened: Open) -> None:
    """By pasted YAML, with the right to create pods there; the answer says nothing of other namespaces."""
    async with exposing() as exposed, proxied(exposed.url) as url:
        exposed.api.rights["red"] |= {("create", "red")}
        exposed.cluster.pod("blue-runs", namespace="blue")
        async with opened(f"{url}#/what-if", expected="status of 40") as tab:
            await sign_in(tab, "red")
            await tab.page.get_by_label("Namespace").fill("red")
            await tab.page.get_by_text("Where would it go?").click()
            await tab.shows("the largest card in this cluster has")
            await tab.page.get_by_text("How many of it fit?").click()
            await tab.shows("What fits")
            assert "blue" not in await tab.text("main")
            assert await tab.findings() == []
            await tab.page.get_by_label("Namespace").fill("blue")
            await tab.page.get_by_text("What still fits at all?").click()
            await tab.shows("red cannot create pods in namespace blue")
