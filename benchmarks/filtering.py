"""`/filter` and `/prioritize` over TLS with the names of all nodes, as kube-scheduler asks. Beside it one numpy pass.

The extender is the real one, in a process of its own; only what it knows of the cluster was put there by hand.
`python -m benchmarks.filtering URL` asks any other extender the same.
"""

import argparse
import asyncio
import multiprocessing
import random
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from benchmarks import cluster, fleets, http_load
from benchmarks.extender import serve
from benchmarks.floor import floor
from benchmarks.results import Row, Sample, microseconds, milliseconds, percentile

NAME = "filtering"
_NODES = 5_000
_P99_MS = 10.0
_FITS, _FITS_NOWHERE = 3_000, fleets.MEMORY_MIB + 1


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    nodes, requests = (100, 10) if smoke else (_NODES, 1_000)
    beside = f"one numpy pass {microseconds(floor(fleets.half_full(nodes)))}"
    with _process(nodes) as (port, authority):
        tls = ssl.create_default_context(cadata=authority)
        for path, memory_mib, fleet in (
            ("/filter", _FITS, "half full"),
            ("/filter", _FITS_NOWHERE, "nothing fits"),
            ("/prioritize", _FITS, "half full"),
        ):
            request = http_load.post(path, question(nodes, memory_mib), host="localhost")
            seconds = _ask(request, host="localhost", port=port, tls=tls, requests=requests)
            what = f"POST {path} over TLS, {nodes:,} node names, {fleet}"
            p99 = percentile(seconds, 99) * 1e3
            row = Row(NAME, what, milliseconds(seconds), beside, f"p99 ≤ {_P99_MS:g} ms", p99 <= _P99_MS)
            yield row, Sample(NAME, what, seconds)


def question(nodes: int, memory_mib: int) -> bytes:
    """Answer ExtenderArgs for a pod that asks for a share of a card.

    The nodes come in no order: kube-scheduler filters them in parallel.
    """
    pod = cluster.fractional("asks", memory_mib=memory_mib)
    names = [fleets.node(number) for number in range(nodes)]
    random.Random(3).shuffle(names)
    return msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": names})


def _ask(request: bytes, *, host: str, port: int, tls: ssl.SSLContext | None, requests: int) -> list[float]:
    load = http_load.load(request, host=host, port=port, connections=1, requests=requests, tls=tls, name=host)
    _, seconds = asyncio.run(load)
    return seconds


@contextmanager
def _process(nodes: int) -> Iterator[tuple[int, str]]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(nodes, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise SystemExit("filtering: the extender did not start in 60 s")
        yield ours.recv()
    finally:
        process.terminate()
        process.join(10)


def main() -> None:
    """Ask an extender, whosever it is, and print how long its answers took."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filtering", description=main.__doc__)
    parser.add_argument("url", help="with the path, for example https://localhost:8444/filter")
    parser.add_argument("--ca", type=Path, help="a file with the authorities of its certificate")
    parser.add_argument("--token-file", type=Path, help="a file with a bearer token")
    parser.add_argument("--nodes", type=int, default=_NODES, help="how many of the fleet's names are sent")
    parser.add_argument("--requests", type=int, default=1_000)
    arguments = parser.parse_args()
    parts = urlsplit(arguments.url)
    token = arguments.token_file.read_text().strip() if arguments.token_file else ""
    host, is_tls = parts.hostname or "", parts.scheme == "https"
    request = http_load.post(parts.path, question(arguments.nodes, _FITS), host=host, token=token)
    tls = ssl.create_default_context(cafile=arguments.ca) if is_tls else None
    port = parts.port or (443 if is_tls else 80)
    print(milliseconds(_ask(request, host=host, port=port, tls=tls, requests=arguments.requests)))


if __name__ == "__main__":
    main()
