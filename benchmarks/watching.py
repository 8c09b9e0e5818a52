"""When pods get their nodes, as the API server says it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType

import msgspec

from benchmarks import cluster
from cluster.api import Api
from cluster.metadata import ObjectMeta
from cluster.reflector import Reflector
from cluster.resource import PODS

_PATIENCE_S = 300.0


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: ObjectMeta
    spec: _Spec


class Bound(msgspec.Struct, frozen=True):
    """When each pod was seen to have its node, by `time.perf_counter`, in the order in which they were."""

    at: Mapping[str, float]

    @property
    def since_first(self) -> list[float]:
        """Seconds from the first pod to each of them."""
        times = list(self.at.values())
        return [each - times[0] for each in times]

    @property
    def rate(self) -> float:
        """Pods a second, from the first to the last: nobody's start is in it."""
        return (len(self.at) - 1) / self.since_first[-1]


@asynccontextmanager
async def bound(api: Api, prefix: str, count: int) -> AsyncIterator["asyncio.Future[Bound]"]:
    """Answer what becomes known once `count` pods whose names begin with `prefix` have nodes."""
    at: dict[str, float] = {}
    result: asyncio.Future[Bound] = asyncio.get_running_loop().create_future()

    def note(pod: _Pod, _old: _Pod | None) -> None:
        name = pod.metadata.name
        if pod.spec.node_name and name.startswith(prefix) and name not in at:
            at[name] = time.perf_counter()
            if len(at) == count:
                result.set_result(Bound(MappingProxyType(at)))

    watch = Reflector(api, PODS, _Pod, on_set=note, namespace=cluster.NAMESPACE)
    watching = asyncio.create_task(watch.run())
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await watch.synced.wait()
            yield result
    except TimeoutError:
        raise SystemExit(f"{len(at)} of {count} pods {prefix}… have a node after {_PATIENCE_S:g} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
