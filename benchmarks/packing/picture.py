"""Draws the allocated share of the cards over arrivals, for all policies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

_FROM = 0.7
"""Before, every policy places every task."""


def draw(lines: Mapping[str, Sequence[tuple[float, float]]], path: Path) -> None:
    """Draw points of the arrived and the allocated share by policy; the same points yield the same file."""
    mpl.rcParams["svg.hashsalt"] = "tranche"
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for policy, line in lines.items():
        shown = [(arrived * 100, allocated * 100) for arrived, allocated in line if arrived >= _FROM]
        axes.plot(*zip(*shown, strict=True), label=policy, linewidth=2.5 if policy == "Tranche" else 1.2)
    axes.set_xlabel("requested cards that have arrived, in % of the fleet's cards")
    axes.set_ylabel("allocated cards, in %")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None})
