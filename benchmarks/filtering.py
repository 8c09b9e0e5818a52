"""`/filter` and `/prioritize` over TLS with the names of all nodes, as kube-scheduler calls them.

The extender is the real one, in a process of its own, with a state that is filled directly. To measure another extender
the same way, pass the output of `python -m benchmarks.filtering` to `benchmarks.http_load`.
"""

import random
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks import cluster, fleets, http_load, profile, subprocesses
from benchmarks.extender import serve
from benchmarks.floor import floor
from benchmarks.pace import within
from benchmarks.results import Row, Sample, microseconds, milliseconds, percentile

NAME = "filtering"
_NODES = 5_000
_P99_MS = 8.0
_FITS, _FITS_NOWHERE = 3_000, fleets.MEMORY_MIB + 1


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    nodes, requests = (100, 10) if smoke else (_NODES, 1_000)
    numpy_pass = f"one numpy pass {microseconds(floor(fleets.half_full(nodes)))}"
    with subprocesses.running(serve, nodes, _asking(), what="the extender") as (_, (port, authority)):
        tls = ssl.create_default_context(cadata=authority)
        for path, memory_mib, fleet in (
            ("/filter", _FITS, "half full"),
            ("/filter", _FITS_NOWHERE, "nothing fits"),
            ("/prioritize", _FITS, "half full"),
        ):
            request = http_load.post(path, filter_arguments(nodes, memory_mib), host="localhost")
            load = http_load.load(
                request, host="localhost", port=port, connections=1, requests=requests, tls=tls, name="localhost"
            )
            _, seconds = uvloop.run(load)
            what = f"POST {path} over TLS, {nodes:,} node names, {fleet}"
            p99 = percentile(seconds, 99) * 1e3
            must = "! " if path == "/filter" else ""
            row = Row(
                NAME, what, milliseconds(seconds), numpy_pass, f"{must}p99 ≤ {_P99_MS:g} ms", within(p99, _P99_MS)
            )
            yield row, Sample(NAME, what, seconds)


def flame(path: Path) -> None:
    """Write a flame graph of the extender while it filters."""
    request = http_load.post("/filter", filter_arguments(_NODES, _FITS), host="localhost")
    with subprocesses.running(serve, _NODES, _asking(), what="the extender") as (pid, (port, authority)):
        tls = ssl.create_default_context(cadata=authority)
        load = http_load.load(
            request, host="localhost", port=port, connections=1, requests=1_500, tls=tls, name="localhost"
        )
        with profile.recorded(pid, path):
            uvloop.run(load)


def filter_arguments(nodes: int, memory_mib: int) -> bytes:
    """Return ExtenderArgs for a pod that requests a share of a card.

    The nodes are unordered, because kube-scheduler filters them in parallel.
    """
    pod = _pod(memory_mib)
    names = [fleets.node(number) for number in range(nodes)]
    random.Random(3).shuffle(names)
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _pod(memory_mib: int) -> dict[str, Any]:
    """Return a pod with a UID of its own."""
    pod = cluster.fractional(f"asks-{memory_mib}", memory_mib=memory_mib)
    pod["metadata"]["uid"] = f"uid-{memory_mib}"
    return pod


def _asking() -> list[dict[str, Any]]:
    """Return the pods that kube-scheduler asks about: the extender knows them from its watch."""
    return [_pod(memory_mib) for memory_mib in (_FITS, _FITS_NOWHERE)]


if __name__ == "__main__":
    sys.stdout.buffer.write(filter_arguments(_NODES, _FITS))
