"""The soak: a long run under load and without faults, to find processes that grow."""

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
    """The result of a soak.

    Attributes:
        minutes: the duration.
        created: number of pods created.
        growths: the growth of each process.
        violations: the promises that were broken.
    """

    minutes: float
    created: int
    growths: list[Growth]
    violations: list[Violation]

    @property
    def is_well(self) -> bool:
        """Whether no promise was broken and no process grew by the limit or more."""
        return not self.violations and all(each.percent < LIMIT_PERCENT for each in self.growths)

    def table(self) -> str:
        """Return the result as a table."""
        rows = [
            (each.process, f"{each.warm:.1f}", f"{each.end:.1f}", f"{each.most:.1f}", f"{each.percent:+.2f} %")
            for each in self.growths
        ]
        heads = ("process", "MiB after warm-up", "MiB at the end", "MiB maximum", f"growth (limit {LIMIT_PERCENT:g} %)")
        totals = f"{self.minutes:g} minutes, {self.created} pods created, {len(self.violations)} violations"
        return f"{tabulate(rows, headers=heads, tablefmt='github', disable_numparse=True)}\n{totals}"


async def soak(config: Settings, *, report: Callable[[str], None]) -> Soaked:
    """Create and delete pods for `config.minutes`, and sample the memory of every process under test."""
    samples: list[Sample] = []
    config.results.mkdir(parents=True, exist_ok=True)
    with (config.results / "soak.jsonl").open("wb") as file:

        def keep(sample: Sample) -> None:
            samples.append(sample)
            file.write(msgspec.json.encode(sample._asdict()) + b"\n")

        async with under_load(config, Random(config.seed), report=report) as (world, checker, load):  # noqa: S311
            watching = asyncio.create_task(sampling(world.replicas, keep))
            await asyncio.wait((watching,), timeout=60 * config.minutes)
            if watching.done():
                watching.result()
            watching.cancel()
            load.stop()
            remaining = await settle(world, checker.books)
    return Soaked(
        config.minutes,
        load.created,
        growths(samples, seconds=60 * config.minutes),
        [*checker.books.violations, *remaining],
    )
