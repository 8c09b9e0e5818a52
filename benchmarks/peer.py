"""Another scheduler on a cluster of yours: pods per second, and how long each waited for its node.

It creates pods of one shape for a scheduler by its name, as fast as the API server accepts them or at a steady rate,
waits until all have nodes, and deletes them. benchmarks/peers.md tells how to set up the schedulers.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import uvloop

from benchmarks import cluster, watching
from benchmarks.results import milliseconds
from cluster.api import Api
from cluster.resource import PODS

_LABEL = "benchmarks/peer"


def main() -> int:
    """Measure one scheduler; exit with 0 once all pods had nodes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="of a user who may create pods (KUBECONFIG)")
    parser.add_argument("--scheduler", required=True, metavar="NAME", help="the pods' spec.schedulerName")
    parser.add_argument("--pods", type=int, default=500, metavar="N", help="how many pods (%(default)s)")
    parser.add_argument(
        "--a-second", type=int, default=0, metavar="N", help="create them at this rate; as fast as possible by default"
    )
    for option, what in (("limit", "a limit and request"), ("annotation", "an annotation"), ("label", "a label")):
        parser.add_argument(
            f"--{option}", type=_pair, action="append", default=[], metavar="KEY=VALUE", help=f"{what} of each pod"
        )
    arguments = parser.parse_args()
    if arguments.pods < 2:
        parser.error("--pods: a rate needs at least 2 pods")
    pod = _pod(arguments.scheduler, dict(arguments.limit), dict(arguments.annotation), dict(arguments.label))
    rate, waits = uvloop.run(_measure(arguments.kubeconfig, pod, arguments.pods, arguments.a_second))
    print(f"{arguments.scheduler}: {rate:.0f} pods/s, from creation to node {milliseconds(waits)}")
    return 0


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _pod(scheduler: str, limits: dict[str, str], annotations: dict[str, str], labels: dict[str, str]) -> dict[str, Any]:
    pod = cluster.plain("", scheduler=scheduler)
    pod["metadata"] |= {"annotations": annotations, "labels": {**labels, _LABEL: scheduler}}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": limits}
    return pod


async def _measure(kubeconfig: str, pod: dict[str, Any], count: int, a_second: int) -> tuple[float, list[float]]:
    """Return pods per second from the first to the last node, and the seconds that each pod waited."""
    prefix, requested = f"peer-{int(time.time())}-", dict[str, float]()
    async with cluster.client(kubeconfig) as api:

        async def create(name: str) -> None:
            requested[name] = time.perf_counter()
            body = {**pod, "metadata": {**pod["metadata"], "name": name}}
            await api.create(PODS, body, namespace=cluster.NAMESPACE)

        names: Sequence[str] = [f"{prefix}{number}" for number in range(count)]
        try:
            async with watching.bound(api, prefix, count) as seen:
                if a_second:
                    await cluster.on_a_clock((create(name) for name in names), a_second=a_second)
                else:
                    await cluster.at_once(create(name) for name in names)
                bound = await seen
        finally:
            await asyncio.shield(_delete(api, pod["metadata"]["labels"][_LABEL]))
    return bound.rate, [at - requested[name] for name, at in bound.at.items()]


async def _delete(api: Api, scheduler: str) -> None:
    parameters = {"labelSelector": f"{_LABEL}={scheduler}", "gracePeriodSeconds": "0"}
    await api.request("DELETE", PODS.path(namespace=cluster.NAMESPACE), params=parameters)


if __name__ == "__main__":
    sys.exit(main())
