"""The comparison of packing policies runs, and counts what it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.packing import run, workload
from benchmarks.packing.fgd import Fgd
from benchmarks.packing.fleet import Choice, Fleet
from benchmarks.packing.ours import ours
from benchmarks.packing.reference import REFERENCES, best_fit
from benchmarks.packing.workload import Machine, Task, Workload

ROOT = Path(__file__).parents[2]
MACHINES = (Machine("a", 16_000, 65_536, 2, "A"), Machine("b", 64_000, 262_144, 2, "B"))


def test_results_have_a_line_for_each_policy(tmp_path: Path) -> None:
    """Of each seed, after the machine; without the trace, of random shapes."""
    command = [sys.executable, "-m", "benchmarks.packing", "shapes", "--seeds", "1", "--nodes", "5"]
    command += ["--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    assert "| random shapes | Tranche " in done.stdout
    (file,) = tmp_path.glob("*.jsonl")
    machine, *lines = map(json.loads, file.read_text().splitlines())
    assert machine["processors"] >= 1
    assert {line["policy"] for line in lines} == {
        *("Random", *REFERENCES, "FGD", "Tranche", "Tranche, cards: spread", "Tranche, stranded: 0"),
    }
    assert all(0.0 < share <= 1.0 for line in lines for share in line["allocated"])


def test_the_cost_of_a_decision_is_compared_in_pairs(tmp_path: Path) -> None:
    """A line for each, after the machine; the result is the median."""
    command = [sys.executable, "-m", "benchmarks.packing.cost", "--pairs", "2", "--nodes", "5"]
    command += ["--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    (file,) = tmp_path.glob("cost-*.jsonl")
    _, *pairs = map(json.loads, file.read_text().splitlines())
    assert [pair["seed"] for pair in pairs] == [1, 2]
    ratio = sum(pair["mean"] / pair["mean_without"] for pair in pairs) / 2
    assert f"random shapes: a decision takes {ratio:.3f} times as long" in done.stdout


def test_tranche_counts_as_the_fleet_does() -> None:
    """No task gets a card or CPU that the fleet does not have, and one that ends gives everything back."""
    shapes = workload.random_shapes(nodes=5)
    fleet = Fleet(shapes.machines)
    policy = ours(shapes.machines)(fleet)
    placed = []
    for task in shapes.drawn(1, until=1.5):
        choice = policy.choose(task)
        assert (choice is not None) == bool(fleet.fits(task).any())
        if choice is not None:
            assert fleet.fits(task)[choice.node]
            fleet.add(task, choice)
            placed.append((task, choice))
    for task, choice in placed:
        fleet.remove(task, choice)
        policy.end(task, choice)
    assert all(policy.choose(task) is not None for task, _ in placed[:5])


def test_fgd_keeps_cards_together() -> None:
    """A half goes to the card that has a half left, so that the other one stays whole for the usual task."""
    fleet, half, whole = Fleet(MACHINES[:1]), Task(1_000, 1_024, 1, 500), Task(1_000, 1_024, 1, 1_000)
    fleet.add(half, Choice(0, (1,)))
    assert Fgd(fleet, {whole: 3, half: 1}).choose(half) == Choice(0, (1,))
    assert best_fit(fleet).choose(whole) == Choice(0, (0,))


def test_slices_share_cards_and_others_have_whole_ones() -> None:
    """As the benchmark states it: three quarters request 10 to 40 % of a card, and CPU is never short."""
    load = workload.slices_and_cards(nodes=2)
    slices = [each.task for each in load.arrivals if each.task.milli < workload.WHOLE]
    assert 0.7 < len(slices) / len(load.arrivals) < 0.8
    assert {each.milli for each in slices} == {*range(100, 401, 50)}
    assert {each.task.cards for each in load.arrivals} == {1, 2, 4, 8}
    for machine in load.machines:
        per_card = machine.cpu * workload.WHOLE / machine.cards
        assert all(each.task.cpu * workload.WHOLE <= per_card * each.task.size for each in load.arrivals)


def test_tasks_that_end_leave_their_cards() -> None:
    """With half of the cards requested, half are allocated on average; beyond all, not more than all."""
    task = workload.Arrival(Task(1_000, 1_024, 1, 1_000), 0.0, 100.0)
    load = Workload("small", MACHINES, (task,))
    assert run.turn_over(load, best_fit, seed=1, load=0.5, days=1.0) == pytest.approx(0.5, abs=0.1)
    assert run.turn_over(load, best_fit, seed=1, load=9.0, days=1.0) == pytest.approx(0.9, abs=0.1)
