"""Nodes and tasks: those of a production trace, or drawn from distributions that are stated here.

The trace is Alibaba's cluster-trace-gpu-v2023 (openb), the workload of "Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent" (USENIX ATC '23). Like there, tasks are drawn with replacement.
"""

import csv
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

WHOLE: Final = 1000
"""Millicards of a card."""
RANDOM: Final = "random shapes"
"""The name of the workload that is drawn from the distributions stated here."""
SLICES: Final = "slices and whole cards"
"""The name of the workload of both."""
_NODES, _TASKS = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"


class Machine(msgspec.Struct, frozen=True):
    """A node: CPU in millicores, memory in MiB, cards, and their model."""

    name: str
    cpu: int
    memory: int
    cards: int
    model: str


class Task(msgspec.Struct, frozen=True):
    """What a task requests: CPU in millicores, memory in MiB, cards, millicards of each, and the models that will do.

    A task without cards has 0 millicards; one that requests a part of a card requests one card. Without models, every
    model will do.
    """

    cpu: int
    memory: int
    cards: int
    milli: int
    models: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """The millicards of all its cards."""
        return self.cards * self.milli


class Arrival(msgspec.Struct, frozen=True):
    """A task of the trace with the seconds at which it was created, and for which it existed."""

    task: Task
    created: float
    lasts: float


class Workload(msgspec.Struct, frozen=True):
    """A fleet and the tasks that may arrive, each as often as it is listed."""

    name: str
    machines: tuple[Machine, ...]
    arrivals: tuple[Arrival, ...]

    @property
    def size(self) -> int:
        """The millicards of the fleet."""
        return sum(each.cards for each in self.machines) * WHOLE

    def drawn(self, seed: int, *, until: float) -> Iterator[Task]:
        """Draw tasks with replacement until they request `until` times the cards of the fleet."""
        chance, requested = random.Random(seed), 0
        while requested < until * self.size:
            task = chance.choice(self.arrivals).task
            requested += task.size
            yield task

    def naming_models(self, *, share: float, seed: int = 0) -> "Workload":
        """Return the workload in which a share of the GPU tasks, drawn by the cards of each model, name a model."""
        chance, models = random.Random(seed), [each.model for each in self.machines for _ in range(each.cards)]
        largest = {model: max(each.cards for each in self.machines if each.model == model) for model in {*models}}

        def named(arrival: Arrival) -> Arrival:
            task = arrival.task
            if not task.cards or chance.random() >= share:
                return arrival
            model = chance.choice([each for each in models if largest[each] >= task.cards])
            return msgspec.structs.replace(arrival, task=msgspec.structs.replace(task, models=frozenset({model})))

        name = f"{self.name}, {share:.0%} of the GPU tasks name a model"
        return Workload(name, self.machines, tuple(map(named, self.arrivals)))


def read(folder: Path) -> Workload:
    """Read the trace from its two files."""
    with (folder / _NODES).open() as file:
        machines = [
            Machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
            for row in csv.DictReader(file)
        ]
    with (folder / _TASKS).open() as file:
        arrivals = [_arrival(row) for row in csv.DictReader(file)]
    return Workload("trace", tuple(machines), tuple(arrivals))


def _arrival(row: dict[str, str]) -> Arrival:
    models = frozenset(filter(None, row["gpu_spec"].split("|")))
    task = Task(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"]), models)
    created = float(row["creation_time"])
    return Arrival(task, created, float(row["deletion_time"]) - created)


def random_shapes(*, nodes: int, seed: int = 0) -> Workload:
    """Return nodes and tasks of many shapes, in which CPU, memory and cards are about equally scarce.

    Nodes have 2, 4 or 8 cards with 8 to 16 cores and 32 to 128 GiB each. Of the tasks, a tenth request no card, half a
    part of one in steps of 5 %, and the others 1, 2, 4 or 8 cards; each requests 4 to 20 cores and 8 to 120 GiB a card.
    """
    chance = random.Random(seed)
    machines = []
    for number in range(nodes):
        cards = chance.choice((2, 4, 8))
        cpu, memory = chance.choice((8, 12, 16)) * 1000 * cards, chance.choice((32, 64, 128)) * 1024 * cards
        machines.append(Machine(f"node-{number:05}", cpu, memory, cards, chance.choice(("A", "B"))))
    tasks = [_random_task(chance) for _ in range(2000)]
    return Workload(RANDOM, tuple(machines), tuple(Arrival(each, 0.0, 0.0) for each in tasks))


def slices_and_cards(*, nodes: int, seed: int = 0) -> Workload:
    """Return nodes and tasks that share cards or have whole ones, and end; CPU and memory are plentiful.

    Nodes have 8 cards with 16 cores and 128 GiB each. Of the tasks, three quarters request a part of a card, 10 to 40 %
    in steps of 5, and the others 1, 2, 4 or 8 cards; each requests 6 cores and 32 GiB a card, and exists for 1 to 24 h.
    """
    chance = random.Random(seed)
    machines = tuple(Machine(f"node-{number:05}", 128_000, 1024 * 1024, 8, "A") for number in range(nodes))

    def drawn() -> Arrival:
        cards, milli = 1, 50 * chance.randint(2, 8)
        if chance.random() < 0.25:
            cards, milli = chance.choices((1, 2, 4, 8), (50, 20, 15, 15))[0], WHOLE
        size = cards * milli
        task = Task(6 * size, 32 * 1024 * size // WHOLE, cards, milli)
        return Arrival(task, 0.0, chance.uniform(1, 24) * 3600)

    return Workload(SLICES, machines, tuple(drawn() for _ in range(2000)))


def _random_task(chance: random.Random) -> Task:
    kind = chance.random()
    if kind < 0.1:
        cards, milli, share = 0, 0, chance.uniform(0.1, 1.0)
    elif kind < 0.6:
        cards, milli = 1, 50 * chance.randint(1, 19)
        share = milli / WHOLE
    else:
        cards = chance.choices((1, 2, 4, 8), (60, 20, 10, 10))[0]
        milli, share = WHOLE, float(cards)
    return Task(
        round(share * chance.uniform(4_000, 20_000)), round(share * chance.uniform(8, 120) * 1024), cards, milli
    )


def shapes(tasks: Sequence[Task]) -> dict[Task, int]:
    """Return how often each task is among `tasks`."""
    counted: dict[Task, int] = {}
    for task in tasks:
        counted[task] = counted.get(task, 0) + 1
    return counted
