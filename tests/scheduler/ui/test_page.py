"""The files of the page over HTTP."""

from scheduler.ui.assets import HEADERS
from tests.scheduler.ui.pages import Site


async def test_every_response_has_the_policy(site: Site) -> None:
    """Also errors, the API that the page reads, and the event stream."""
    async with site.reading("use") as reader:
        assert reader._response.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
    for path, status in (("ui/", 200), ("ui/main.js", 200), ("ui/nothing", 404), ("api/allocation", 200)):
        response = await site.get(path)
        assert response[0] == status, path
        assert {name: response[1].get(name) for name in HEADERS} == HEADERS, path


async def test_unchanged_files_are_not_sent_again(site: Site) -> None:
    """The browser asks with the tag that it has."""
    _, headers, content = await site.get("ui/main.js")
    assert headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert content
    assert (await site.get("ui/main.js", headers={"If-None-Match": headers["ETag"]}))[0] == 304


async def test_no_file_outside_of_the_page_is_served(site: Site) -> None:
    """Only names that were found at the start exist."""
    for path in ("ui/..%2f__init__.py", "ui/../routes.py", "ui/%2e%2e/routes.py", "ui//etc/passwd"):
        assert (await site.get(path))[0] == 404


async def test_the_page_can_be_behind_any_path(site: Site) -> None:
    """Redirects are relative, as the API server's proxy needs it."""
    for path in ("", "ui"):
        status, headers, _ = await site.get(path, allow_redirects=False)
        assert (status, headers["Location"]) == (302, "ui/")


async def test_another_name_for_this_host_is_refused(site: Site) -> None:
    """A foreign site whose name resolves to loopback cannot read the page."""
    assert (await site.get("ui/", headers={"Host": "evil.example"}))[0] == 421
    assert (await site.get("ui/", headers={"Host": "localhost:8446"}))[0] == 200
