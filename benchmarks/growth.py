"""The cost of a decision by the number of nodes."""

from collections.abc import Iterator

from benchmarks import decision
from benchmarks.results import Row, Sample

NAME = "growth"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    for nodes in (50, 100) if smoke else (100, 1_000, 5_000, 20_000, 100_000):
        yield from decision.at(nodes, benchmark=NAME, decisions=20 if smoke else 1_000)
