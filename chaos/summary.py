"""What a run was: as a table for people, as JSON lines for who looks closer."""

from collections import Counter
from pathlib import Path

import msgspec
from tabulate import tabulate

from chaos.violation import Violation


class Summary(msgspec.Struct):
    """What came of a run.

    Attributes:
        seed: of what was drawn.
        seconds: for how long faults were done.
        faults: how often each was done.
        traffic: what the proxies did to single requests.
        created: pods that the API server took.
        deleted: how many of them were deleted again.
        placed: how many had a node.
        asked_again: creations that were tried again, because admission or the API server was away.
        gaps: how often pods may have changed unseen.
        slowest_seconds: how long the slowest pod that fitted all the time had to wait.
        violations: what was broken.
    """

    seed: int
    seconds: float
    faults: Counter[str]
    traffic: Counter[str]
    created: int
    deleted: int
    placed: int
    asked_again: int
    gaps: int
    slowest_seconds: float
    violations: list[Violation]

    def table(self) -> str:
        """Answer it as a table."""
        rows = [
            *((f"fault: {name}", count) for name, count in sorted(self.faults.items())),
            *((f"request: {name}", count) for name, count in sorted(self.traffic.items())),
            ("faults in all", self.faults.total()),
            ("pods created", self.created),
            ("pods deleted", self.deleted),
            ("pods placed", self.placed),
            ("creations asked again", self.asked_again),
            ("gaps in what was seen", self.gaps),
            ("longest wait of a pod that fitted, s", round(self.slowest_seconds, 1)),
            ("violations", len(self.violations)),
        ]
        return tabulate(rows, headers=("what", f"in {self.seconds:.0f} s, seed {self.seed}"), tablefmt="github")

    def write(self, path: Path) -> None:
        """Write it as one line of JSON at the end of a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(self) + b"\n")
