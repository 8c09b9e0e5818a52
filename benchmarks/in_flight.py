"""Throughput by the number of Bindings in flight, of the scheduling loop and of a client that decides nothing."""

from collections.abc import Iterator

import uvloop

from benchmarks import ceiling, cluster, schedulers, watching
from benchmarks.results import Row, Sample
from benchmarks.watching import Bound

NAME = "in-flight"


def run(*, smoke: bool) -> Iterator[tuple[Row, Sample]]:
    """Measure; a smoke run takes seconds and its figures mean nothing."""
    nodes, pods, widths = (10, 20, (4,)) if smoke else (1_000, 600, (1, 2, 4, 8, 16, 32, 64))
    for client, width, bound in uvloop.run(_measure(nodes=nodes, pods=pods, widths=widths)):
        what = f"{client}, {width} Bindings under way, {nodes:,} nodes, half full"
        yield Row(NAME, what, f"{bound.rate:.0f} pods/s"), Sample(NAME, what, bound.since_first)


async def _measure(*, nodes: int, pods: int, widths: tuple[int, ...]) -> list[tuple[str, int, Bound]]:
    measured = []
    with cluster.running() as layout:
        async with cluster.client(layout.kubeconfig) as api:
            await cluster.settle(api, layout, nodes=nodes)
            account = schedulers.identity(layout)
            for width in widths:
                prefix = f"ours-{width}-"
                await cluster.create(api, (cluster.fractional(f"{prefix}{number}") for number in range(pods)))
                async with watching.bound(api, prefix, pods) as seen:
                    with schedulers.loop(layout, account, "--concurrent-binds", str(width)):
                        measured.append(("loop", width, await seen))
                prefix = f"client-{width}-"
                await cluster.create(api, (cluster.fractional(f"{prefix}{number}") for number in range(pods)))
                async with watching.bound(api, prefix, pods) as seen, cluster.client(account) as scheduler:
                    await ceiling.bind(scheduler, prefix, nodes=nodes, pods=pods, at_once=width)
                    measured.append(("unlimited client", width, await seen))
    return measured
