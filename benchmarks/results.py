"""Results: raw samples as JSON lines, and rows of a table with their targets."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from benchmarks.machine import Machine

FOLDER = Path("benchmarks/raw")
_DIGITS = 7  # a tenth of a microsecond


class Row(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        benchmark: the benchmark that measured it.
        what: the name of the row.
        figure: the result, with its unit.
        floor: the result of a peer or of a floor in the same run, with its unit; empty without a peer.
        target: the target; empty for a figure without one.
        passed: whether the target was reached; None without a target.
    """

    benchmark: str
    what: str
    figure: str
    floor: str = ""
    target: str = ""
    passed: bool | None = None


class Sample(msgspec.Struct, frozen=True):
    """The raw numbers of a row: seconds, in the order in which they were measured."""

    benchmark: str
    what: str
    seconds: list[float]


class _Line(msgspec.Struct, omit_defaults=True):
    """One line of a file: a row, a sample, or the machine and its pace."""

    machine: Machine | None = None
    pace: float = 0.0
    row: Row | None = None
    sample: Sample | None = None


class Result(msgspec.Struct, frozen=True):
    """One run of one benchmark: a file of JSON lines.

    Attributes:
        benchmark: its name.
        machine: where it ran.
        rows: its figures.
        samples: its raw numbers.
        pace: the time of a fixed piece of work just before, as a multiple of the usual; 0 if it was not measured.
    """

    benchmark: str
    machine: Machine
    rows: list[Row]
    samples: list[Sample]
    pace: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` has written."""
        decoder = msgspec.json.Decoder(_Line)
        lines = [decoder.decode(line) for line in path.read_bytes().splitlines()]
        ((machine, pace),) = ((line.machine, line.pace) for line in lines if line.machine is not None)
        rows = [line.row for line in lines if line.row is not None]
        return cls(rows[0].benchmark, machine, rows, [line.sample for line in lines if line.sample is not None], pace)

    def write(self, path: Path) -> None:
        """Write the machine, the rows and the raw numbers, one JSON object per line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        encoder = msgspec.json.Encoder()
        rounded = (
            msgspec.structs.replace(each, seconds=[round(second, _DIGITS) for second in each.seconds])
            for each in self.samples
        )
        lines = [
            _Line(machine=self.machine, pace=self.pace),
            *(_Line(row=row) for row in self.rows),
            *(_Line(sample=s) for s in rounded),
        ]
        path.write_bytes(b"".join(encoder.encode(line) + b"\n" for line in lines))


def newest(folder: Path) -> list[tuple[str, Result]]:
    """Return the newest run of each benchmark with its day, by the date in the file's name, oldest first."""
    last = {path.stem.removesuffix(_date(path)): path for path in sorted(folder.glob("*.jsonl"), key=_date)}
    return [(_date(path)[1:11], Result.read(path)) for path in sorted(last.values(), key=_date)]


def _date(path: Path) -> str:
    return path.stem[-len("-2026-11-21T150000Z") :]


def percentile(seconds: Sequence[float], percent: float) -> float:
    """Return the value below which `percent` of the samples lie (nearest rank)."""
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def microseconds(seconds: Sequence[float]) -> str:
    """Return the median and the 99th percentile in microseconds, formatted."""
    return f"p50 {percentile(seconds, 50) * 1e6:.0f} µs, p99 {percentile(seconds, 99) * 1e6:.0f} µs"


def milliseconds(seconds: Sequence[float]) -> str:
    """Return the median and the 99th percentile in milliseconds, formatted."""
    return f"p50 {percentile(seconds, 50) * 1e3:.2f} ms, p99 {percentile(seconds, 99) * 1e3:.2f} ms"


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    verdicts = {True: "PASS", False: "FAIL", None: ""}
    lines = ["| what | measured | compared with | target | |", "|---|---|---|---|---|"]
    lines += [f"| {row.what} | {row.figure} | {row.floor} | {row.target} | {verdicts[row.passed]} |" for row in rows]
    return "\n".join(lines)
