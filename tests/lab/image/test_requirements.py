from __future__ import annotations

import re

import pytest

from lab.image import requirements


def pins(text: str) -> dict[str, str]:
    """Return the version of each package that a requirements file pins."""
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text.lower().replace("_", "-"), re.MULTILINE))


@pytest.mark.parametrize("file", [requirements.RUNTIME, requirements.BUILD], ids=lambda file: file.name)
def test_the_image_has_the_versions_that_are_tested(file: requirements.Path) -> None:
    """Each pin of the image is that of constraints.txt, with which the tests run."""
    tested = pins(requirements.CONSTRAINTS.read_text(encoding="utf-8"))
    pinned = pins(file.read_text(encoding="utf-8"))
    assert pinned
    assert pinned.items() <= tested.items()


def test_the_image_has_every_declared_dependency() -> None:
    """A dependency that pyproject.toml gains is pinned, or the image lacks it."""
    for file, declared in zip((requirements.RUNTIME, requirements.BUILD), requirements.declared(), strict=True):
        names = {re.split(r"[^\w-]", each.lower(), maxsplit=1)[0] for each in declared}
        assert names <= pins(file.read_text(encoding="utf-8")).keys()


@pytest.mark.parametrize("file", [requirements.RUNTIME, requirements.BUILD], ids=lambda file: file.name)
def test_every_pin_has_a_hash(file: requirements.Path) -> None:
    """What the index serves must be what was pinned."""
    blocks = re.split(r"\n(?=\w)", file.read_text(encoding="utf-8").removeprefix(requirements.HEADER))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", block) for block in blocks)


def test_a_package_has_the_hashes_of_all_platforms() -> None:
    """A wheel for each machine is accepted, and equal wheels are listed once."""

    def report(digest: str) -> dict[str, object]:
        package = {
            "metadata": {"name": "NumPy", "version": "1"},
            "download_info": {"archive_info": {"hashes": {"sha256": digest}}},
        }
        return {"install": [package]}

    text = requirements.render([report("b"), report("a"), report("a")])
    assert text == f"{requirements.HEADER}numpy==1 \\\n    --hash=sha256:a \\\n    --hash=sha256:b\n"
