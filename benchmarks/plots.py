"""Plots of results: the cost of a decision by fleet size, and throughput by Bindings in flight."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.results import Result, percentile

_Line = list[tuple[float, float]]


def draw(results: Iterable[Result], folder: Path) -> list[Path]:
    """Draw a plot for each result that has one, as SVG; the same results yield the same files."""
    mpl.rcParams["svg.hashsalt"] = "tranche"
    folder.mkdir(parents=True, exist_ok=True)
    known = {"growth": (_growth, "nodes of 8 cards"), "in-flight": (_in_flight, "Bindings under way")}
    drawn = []
    for result in results:
        if result.benchmark in known:
            paint, across = known[result.benchmark]
            drawn.append(_figure(result, paint, across, folder / f"{result.benchmark}.svg"))
    return drawn


def _figure(result: Result, paint: Callable[[Result, Axes], None], across: str, path: Path) -> Path:
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    paint(result, axes)
    axes.set_xscale("log")
    axes.set_xlabel(across)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _growth(result: Result, axes: Axes) -> None:
    """Plot the median and the 99th percentile of a decision, for each kind of request."""
    medians: dict[str, _Line] = defaultdict(list)
    worst: dict[str, _Line] = defaultdict(list)
    for sample in result.samples:
        if match := re.fullmatch(r"decision, ([\d,]+) nodes of \d+ cards, (.+)", sample.what):
            nodes = float(match[1].replace(",", ""))
            medians[match[2]].append((nodes, percentile(sample.seconds, 50) * 1e6))
            worst[match[2]].append((nodes, percentile(sample.seconds, 99) * 1e6))
    for kind, line in medians.items():
        (drawn,) = axes.plot(*zip(*line, strict=True), marker="o", label=f"{kind}, p50")
        axes.plot(*zip(*worst[kind], strict=True), linestyle=":", color=drawn.get_color(), label=f"{kind}, p99")
    axes.set_yscale("log")
    axes.set_ylabel("µs a decision")


def _in_flight(result: Result, axes: Axes) -> None:
    """Plot pods per second, of the loop and of a client that decides nothing."""
    lines: dict[str, _Line] = defaultdict(list)
    for sample in result.samples:
        if match := re.fullmatch(r"(.+), (\d+) Bindings under way, .*", sample.what):
            lines[match[1]].append((float(match[2]), (len(sample.seconds) - 1) / sample.seconds[-1]))
    for client, line in lines.items():
        axes.plot(*zip(*line, strict=True), marker="o", label=client)
    axes.set_ylabel("pods a second")
    axes.set_ylim(bottom=0)
