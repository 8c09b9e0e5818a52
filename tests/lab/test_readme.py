"""The first twenty lines of the README say how to try the product, and what it does not do."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGINNING = " ".join("\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]).split())


@pytest.mark.parametrize(
    "fact",
    [
        "$ make demo",
        "$ make test",
        "but not `resourceClaims`, `schedulingGroup` and `workloadRef`",
        "It holds a pod with one of these, with an event that names the field",
        "a pod that fits nowhere waits until cards become free",
        "it does not stop a container from using more than it was given",
        "Tranche installs neither HAMi-core nor MPS",
    ],
)
def test_first_twenty_lines_state(fact: str) -> None:
    """The two commands and every limit of the product come first."""
    assert fact in BEGINNING
