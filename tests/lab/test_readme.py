"""The first twenty lines of the README say how to try the product, and what it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import images

ROOT = Path(__file__).parents[2]
BEGINNING = " ".join("\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]).split())


@pytest.mark.parametrize(
    "fact",
    [
        "$ make demo",
        "$ make test",
        "not `resourceClaims`, `workloadRef` and, by default, [`schedulingGroup`](docs/gangs-declaring.md#podgroups)",
        "It holds a pod with one of these, with an event that names the field",
        "a pod that fits nowhere, or a [gang](docs/gangs.md), waits until cards become free",
        "By default it does not stop a container from using more than it was given",
        "Tranche installs neither HAMi-core nor MPS",
    ],
)
def test_first_twenty_lines_state(fact: str) -> None:
    """The two commands and every limit of the product come first."""
    assert fact in BEGINNING


def test_pages_name_the_images_of_the_lab() -> None:
    """A first user learns which image runs on a node without a registry; all of them are in the page about the lab."""
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    assert f"`{images.PLAIN.name}`" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert [each.name for each in (images.PLAIN, images.CUDA_LIKE) if f"`{each.name}`" not in page] == []
