"""The summary of a run, as a table and as a line of JSON."""

from collections import Counter
from pathlib import Path

import msgspec
from tabulate import tabulate

from chaos.violation import Violation


class Summary(msgspec.Struct):
    """The result of a run.

    Attributes:
        seed: the seed of the run.
        seconds: how long faults were injected.
        faults: number of faults by name, of those that disturbed something.
        missing: the names of the faults that should have been injected and were not.
        traffic: number of requests that the proxies disturbed, by treatment.
        created: number of pods that the API server accepted.
        deleted: number of pods that were deleted again.
        placed: number of pods that got a node.
        asked_again: number of creations that were retried because admission or the API server was unavailable.
        gaps: how often changes of pods may have been missed.
        slowest_seconds: longest time that a pod waited although it was schedulable all the time.
        violations: the promises that were broken.
    """

    seed: int
    seconds: float
    faults: Counter[str]
    missing: list[str]
    traffic: Counter[str]
    created: int
    deleted: int
    placed: int
    asked_again: int
    gaps: int
    slowest_seconds: float
    violations: list[Violation]

    def table(self) -> str:
        """Return the result as a table."""
        rows = [
            *((f"fault: {name}", count) for name, count in sorted(self.faults.items())),
            *((f"request: {name}", count) for name, count in sorted(self.traffic.items())),
            (f"faults in total, of {len(self.faults)} kinds", self.faults.total()),
            ("pods created", self.created),
            ("pods deleted", self.deleted),
            ("pods placed", self.placed),
            ("creations retried", self.asked_again),
            ("gaps in the watch of pods", self.gaps),
            ("longest wait of a schedulable pod, s", round(self.slowest_seconds, 1)),
            ("violations", len(self.violations)),
        ]
        return tabulate(rows, headers=("event", f"in {self.seconds:.0f} s, seed {self.seed}"), tablefmt="github")

    @property
    def is_well(self) -> bool:
        """Whether every fault was injected and no promise was broken."""
        return not self.violations and not self.missing

    def write(self, path: Path) -> None:
        """Append the result to a file, as one line of JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(self) + b"\n")
