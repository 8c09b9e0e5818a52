"""A long time under load and without faults: does anything grow?"""

import asyncio
from collections.abc import Callable
from random import Random

import msgspec
from tabulate import tabulate

from chaos.memory import LIMIT_PERCENT, Growth, Sample, growths, sampling
from chaos.run import under_load
from chaos.settings import Settings
from chaos.settling import settle
from chaos.violation import Violation


class Soaked(msgspec.Struct):
    """What came of it.

    Attributes:
        minutes: how long it was.
        created: pods that came meanwhile.
        growths: of each process.
        violations: what was broken.
    """

    minutes: float
    created: int
    growths: list[Growth]
    violations: list[Violation]

    @property
    def is_well(self) -> bool:
        """Whether nothing was broken and nobody grew by as much as the limit."""
        return not self.violations and all(each.percent < LIMIT_PERCENT for each in self.growths)

    def table(self) -> str:
        """Answer it as a table."""
        rows = [
            (each.process, f"{each.warm:.1f}", f"{each.end:.1f}", f"{each.most:.1f}", f"{each.percent:+.2f} %")
            for each in self.growths
        ]
        heads = ("process", "MiB when warm", "MiB at the end", "MiB at most", f"growth (limit {LIMIT_PERCENT:g} %)")
        told = f"{self.minutes:g} minutes, {self.created} pods created, {len(self.violations)} violations"
        return f"{tabulate(rows, headers=heads, tablefmt='github', disable_numparse=True)}\n{told}"


async def soak(told: Settings, *, report: Callable[[str], None]) -> Soaked:
    """Let pods come and go for as long as told, and look at what every process of ours needs meanwhile."""
    samples: list[Sample] = []
    told.results.mkdir(parents=True, exist_ok=True)
    with (told.results / "soak.jsonl").open("wb") as file:

        def keep(sample: Sample) -> None:
            samples.append(sample)
            file.write(msgspec.json.encode(sample._asdict()) + b"\n")

        async with under_load(told, Random(told.seed), report=report) as (place, checker, load):  # noqa: S311
            watching = asyncio.create_task(sampling(place.replicas, keep))
            await asyncio.wait((watching,), timeout=60 * told.minutes)
            if watching.done():
                watching.result()
            watching.cancel()
            load.stop()
            broken = await settle(place, checker.books)
    return Soaked(
        told.minutes,
        load.created,
        growths(samples, seconds=60 * told.minutes),
        [*checker.books.violations, *broken],
    )
