"""`python -m benchmarks.packing`: how many of a fleet's cards each policy allocates before tasks find no node."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from tabulate import tabulate

from benchmarks import machine
from benchmarks.packing import picture, run, workload
from benchmarks.packing.fgd import Fgd
from benchmarks.packing.fleet import Fleet
from benchmarks.packing.ours import ours
from benchmarks.packing.reference import REFERENCES, Policy, at_random
from benchmarks.packing.run import MARKS, MakePolicy
from benchmarks.packing.workload import Workload
from benchmarks.results import percentile

OURS, SPREAD, BEFORE, FGD = "Tranche", "Tranche, cards: spread", "Tranche, stranded: 0", "FGD"
_TRACE, _MODELS, _SHAPES, _ENDS, _SLICES = "trace", "models", "shapes", "ends", "slices"
_PARTS: Final = (_TRACE, _MODELS, _SHAPES, _ENDS, _SLICES)
_WITHOUT_TRACE: Final = (_SHAPES, _SLICES)
_NODES_OF_SLICES: Final = 100
_NAMING: Final = 1 / 3
_LOADS: Final = (0.95, 1.1)
_SEEDS_WITH_ENDS: Final = 3
"""Such a run takes three times as long."""
_LEAST_LEAD: Final = 0.4


class Run(msgspec.Struct, frozen=True):
    """One run of one policy.

    Attributes:
        workload: its name.
        policy: its name.
        seed: of the tasks.
        allocated: shares of the cards at each of `MARKS`; with tasks that end, the mean.
        failed: the GPU tasks without a node at each of `MARKS`.
        mean_us: the mean time of a decision.
        p99_us: the 99th percentile.
        line: points of the arrived and the allocated share, for the first seed.
    """

    workload: str
    policy: str
    seed: int
    allocated: list[float]
    failed: list[int] = []
    mean_us: float = 0.0
    p99_us: float = 0.0
    line: list[tuple[float, float]] = []


def main() -> int:
    """Run each policy on each workload and seed; exit with 1 if Tranche is not ahead of FGD on the trace each time."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packing", description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(_PARTS)}; all by default")
    parser.add_argument("--trace", type=Path, metavar="DIR", help="folder of openb's two files; random shapes without")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="how many seeds (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the first of them (%(default)s)")
    parser.add_argument("--brief", action="store_true", help="only Tranche and FGD")
    parser.add_argument("--nodes", type=int, default=400, metavar="N", help="nodes for random shapes (%(default)s)")
    parser.add_argument("--days", type=float, default=1.0, metavar="N", help="days of tasks that end (%(default)s)")
    parser.add_argument(
        "--results", type=Path, default=Path("benchmarks/raw/packing"), metavar="DIR", help="raw figures (%(default)s)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the first seed of the trace as SVG")
    arguments = parser.parse_args()
    parts = frozenset(arguments.parts or (_PARTS if arguments.trace else _WITHOUT_TRACE))
    if not parts <= {*_PARTS} or (parts - {*_WITHOUT_TRACE} and arguments.trace is None):
        parser.error(f"the parts are {', '.join(_PARTS)}, and all but {' and '.join(_WITHOUT_TRACE)} need --trace")
    here = machine.describe()
    print(here)
    runs = []
    path = arguments.results / f"packing-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw:
        raw.write(msgspec.json.encode(here) + b"\n")
        for each in _runs(arguments, parts):
            figures = " / ".join(f"{share:.2%}" for share in each.allocated)
            print(f"{each.workload}, {each.policy}, seed {each.seed}: {figures}", file=sys.stderr, flush=True)
            raw.write(msgspec.json.encode(each) + b"\n")
            runs.append(each)
    if arguments.picture:
        picture.draw({each.policy: each.line for each in runs if each.line}, arguments.picture)
    print(_table(runs))
    return int(not _is_ahead(runs))


def _runs(arguments: argparse.Namespace, parts: frozenset[str]) -> Iterator[Run]:
    real = workload.read(arguments.trace) if arguments.trace is not None else None
    shapes = workload.random_shapes(nodes=arguments.nodes)
    workloads = {_SHAPES: shapes} if real is None else {_TRACE: real, _MODELS: real.naming_models(share=_NAMING)}
    for part, each in {**workloads, _SHAPES: shapes}.items():
        for seed in _seeds(arguments, arguments.seeds) if part in parts else ():
            for policy, make in _policies(each, seed, brief=arguments.brief).items():
                found = run.arrive(each, make, seed=seed)
                yield Run(
                    each.name,
                    policy,
                    seed,
                    found.allocated,
                    found.failed,
                    run.mean(found.seconds) * 1e6,
                    percentile(found.seconds, 99) * 1e6,
                    found.line if seed == arguments.first_seed and part == _TRACE else [],
                )
    slices = workload.slices_and_cards(nodes=_NODES_OF_SLICES)
    for part, ending in ({_SLICES: slices} | ({_ENDS: real} if real is not None else {})).items():
        for load in _LOADS if part in parts else ():
            for seed in _seeds(arguments, min(arguments.seeds, _SEEDS_WITH_ENDS)):
                for policy, make in _policies(ending, seed, brief=arguments.brief).items():
                    mean = run.turn_over(ending, make, seed=seed, load=load, days=arguments.days)
                    yield Run(f"{ending.name}, tasks end, {load:.0%} requested", policy, seed, [mean])


def _seeds(arguments: argparse.Namespace, number: int) -> range:
    return range(arguments.first_seed, arguments.first_seed + number)


def _policies(load: Workload, seed: int, *, brief: bool) -> dict[str, MakePolicy]:
    """Return all policies; FGD is given the shares of all tasks, Tranche learns what it needs."""
    shares = workload.shapes([each.task for each in load.arrivals])
    fgd: Callable[[Fleet], Policy] = lambda fleet: Fgd(fleet, shares)  # noqa: E731 -- one of a table
    compared = {FGD: fgd, OURS: ours(load.machines)}
    if brief:
        return compared
    return {
        "Random": at_random(seed),
        **REFERENCES,
        **compared,
        SPREAD: ours(load.machines, card_policy="spread"),
        BEFORE: ours(load.machines, stranded=0.0),
    }


def _of(runs: Sequence[Run], load: str, policy: str) -> list[Run]:
    return [each for each in runs if each.workload == load and each.policy == policy]


def _table(runs: Sequence[Run]) -> str:
    """Return the means over the seeds, and by how much Tranche is ahead of FGD at least, in percentage points."""
    rows = []
    for load in dict.fromkeys(each.workload for each in runs):
        for policy in dict.fromkeys(each.policy for each in runs):
            found = _of(runs, load, policy)
            shares = [run.mean(column) for column in zip(*(each.allocated for each in found), strict=True)]
            failed = [run.mean(column) for column in zip(*(each.failed for each in found), strict=True)]
            lead = f"{_least_lead(runs, load):+.2f}" if policy == OURS else ""
            rows.append(
                (
                    load,
                    policy,
                    " / ".join(f"{share * 100:.1f}" for share in shares),
                    " / ".join(f"{number:.0f}" for number in failed),
                    f"{run.mean([each.mean_us for each in found]):.0f}" if failed else "",
                    f"{run.mean([each.p99_us for each in found]):.0f}" if failed else "",
                    lead,
                )
            )
    marks = " / ".join(f"{mark:.0%}" for mark in MARKS)
    headers = ("tasks", "policy", f"allocated % at {marks}", "failed", "mean µs", "p99 µs", "least lead over FGD")
    return tabulate(rows, headers, tablefmt="github")


def _least_lead(runs: Sequence[Run], load: str) -> float:
    leads = [
        (mine - theirs) * 100
        for own, other in zip(_of(runs, load, OURS), _of(runs, load, FGD), strict=True)
        for mine, theirs in zip(own.allocated, other.allocated, strict=True)
    ]
    return min(leads)


def _is_ahead(runs: Sequence[Run]) -> bool:
    """Whether Tranche allocates 0.4 points more than FGD at each mark in each run of the trace without ends."""
    loads = dict.fromkeys(each.workload for each in runs if each.failed and each.workload != workload.RANDOM)
    return all(_least_lead(runs, load) >= _LEAST_LEAD for load in loads)


if __name__ == "__main__":
    sys.exit(main())
