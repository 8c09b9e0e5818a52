"""Results as they are written and shown: raw samples as JSON lines, rows of a table with their targets."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks.machine import Machine


class Row(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        benchmark: which one measured it.
        what: the thing measured.
        figure: what came out, with its unit.
        floor: the peer or floor of the same run, with its unit; empty where there is none.
        target: what was to be reached; empty for a figure that only stands beside others.
        passed: whether it was; None without a target.
    """

    benchmark: str
    what: str
    figure: str
    floor: str = ""
    target: str = ""
    passed: bool | None = None


class Sample(msgspec.Struct, frozen=True):
    """The raw numbers behind a row: seconds, in the order in which they were taken."""

    benchmark: str
    what: str
    seconds: list[float]


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Answer the value below which `percent` of the samples lie (nearest rank)."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def microseconds(seconds: Sequence[float]) -> str:
    """Answer median and 99th percentile in words."""
    return f"p50 {percentile(seconds, 50) * 1e6:.0f} µs, p99 {percentile(seconds, 99) * 1e6:.0f} µs"


def milliseconds(seconds: Sequence[float]) -> str:
    """Answer the same in milliseconds."""
    return f"p50 {percentile(seconds, 50) * 1e3:.2f} ms, p99 {percentile(seconds, 99) * 1e3:.2f} ms"


def write(path: Path, machine: Machine, rows: Iterable[Row], samples: Iterable[Sample]) -> None:
    """Write a run: the machine, the rows, the raw numbers, one JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    encoder = msgspec.json.Encoder()
    lines = [{"machine": machine}, *({"row": row} for row in rows), *({"sample": sample} for sample in samples)]
    path.write_bytes(b"".join(encoder.encode(line) + b"\n" for line in lines))


def table(rows: Iterable[Row]) -> str:
    """Answer the rows as a table of Markdown."""
    verdicts = {True: "PASS", False: "FAIL", None: ""}
    lines = ["| what | measured | beside it | target | |", "|---|---|---|---|---|"]
    lines += [f"| {row.what} | {row.figure} | {row.floor} | {row.target} | {verdicts[row.passed]} |" for row in rows]
    return "\n".join(lines)
