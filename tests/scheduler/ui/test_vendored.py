"""What other projects wrote is unchanged, and the page loads and runs nothing but its own files."""

import hashlib
import re

import pytest

from allocation.delivery import DELIVERIES
from scheduler.ui.assets import HEADERS, STATIC, read_assets

VENDOR = STATIC / "vendor"
SUM = re.compile(r"^([0-9a-f]{64})  (\S+)$", re.MULTILINE)
OWN = sorted(path for path in STATIC.rglob("*") if path.is_file() and VENDOR not in path.parents)


def test_vendored_files_are_unchanged() -> None:
    """Every file but our declarations of types is listed with its sum, and a licence for each project."""
    listed = {name: digest for digest, name in SUM.findall((VENDOR / "VENDORED.txt").read_text(encoding="utf-8"))}
    files = [path for path in VENDOR.iterdir() if path.suffix != ".ts"]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    del found["VENDORED.txt"]
    assert listed == found
    assert {"htm-LICENSE.txt", "preact-LICENSE.txt"} <= listed.keys()


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_nothing_needs_an_exception_from_the_policy(path: object) -> None:
    """No script or style within the page, no address of another host, and no HTML made of strings."""
    text = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=\"|javascript:", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc", text)
    assert not re.search(r"(?:src|href)=[\"'`]/|https?://(?!www\.w3\.org/)", text)


def test_the_policy_has_no_exceptions() -> None:
    """Scripts and styles come from the page's own address only; nothing inline, nothing evaluated."""
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"unsafe|https?:|data:|\*|nonce|sha256-", policy)


def test_every_file_that_a_module_imports_is_served() -> None:
    """Imports are relative, and each names a file of the page."""
    assets = read_assets()
    for name, asset in assets.items():
        if not name.endswith(".js") or name.startswith("vendor/"):
            continue
        for target in re.findall(r"""from ['"]([^'"]+)['"]""", asset.content.decode()):
            path = (STATIC / name).parent / target
            assert target.startswith("."), (name, target)
            assert path.resolve().relative_to(STATIC).as_posix() in assets, (name, target)


def test_the_page_has_words_for_every_delivery() -> None:
    """A node with a new one would show its code."""
    text = (STATIC / "sections" / "node.js").read_text(encoding="utf-8")
    assert [each for each in DELIVERIES if f"  {each}: '" not in text and f"  '{each}': '" not in text] == []
