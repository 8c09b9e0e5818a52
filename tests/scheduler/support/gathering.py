"""Gangs that kube-scheduler brings pod by pod: an API server that can refuse single pods, and the calls of verbs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from cluster.errors import ApiError
from scheduler.extender.wire import Args
from scheduler.settings import GangSettings
from tests.scheduler.support.builders import Clock, pod, state
from tests.scheduler.support.extending import Bindings, bound, cache, extending

if TYPE_CHECKING:
    from scheduler.extender.wire import FilterResult
    from scheduler.objects import Pod

SETTINGS = GangSettings(gather_seconds=20.0, backoff_seconds=10.0)


class RefusingBindings(Bindings):
    """An API server that takes dry runs and Bindings, except of the pods named here.

    Attributes:
        in_dry_run: the pods whose dry run is refused.
        refused: how often the Binding of a pod is refused.
        rehearsed: the pods whose Bindings were tried in a dry run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_dry_run: set[str] = set()
        self.refused: dict[str, int] = {}
        self.rehearsed: list[str] = []
        self.release: asyncio.Event | None = None
        """If it is there, Bindings wait for it."""

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Take a Binding, or refuse it."""
        if method != "POST" or not path.endswith("/binding"):
            return await super().request(method, path, **how)
        name = how["body"]["metadata"]["name"]
        refusal = ApiError(request=path, status=403, reason="Forbidden", message="a policy says no")
        if "dryRun" in how.get("params", {}):
            self.rehearsed.append(name)
            if name in self.in_dry_run:
                raise refusal
            return b"{}"
        if self.release is not None:
            await self.release.wait()
        if self.refused.get(name, 0) > 0:
            self.refused[name] -= 1
            raise refusal
        return await super().request(method, path, **how)

    @property
    def bound(self) -> dict[str, str]:
        """The node of each pod that is bound."""
        return {each["metadata"]["name"]: each["target"]["name"] for each in self.written}


class Scene:
    """Nodes with two cards of 1000 MiB each, and gangs whose pods take whole cards.

    Attributes:
        state: the state of the term.
        api: what is written.
        extender: the verbs.
    """

    def __init__(self, *nodes: str, cards: int = 2, settings: GangSettings = SETTINGS) -> None:
        self.clock = Clock()
        self.nodes = nodes
        self.api = RefusingBindings()
        self.state = state(*nodes, cards=cards, clock=self.clock, has_queue=False)
        self.extender = extending(self.state, self.api, gangs=settings)
        self.gathering = self.extender._gathering
        self.pods: dict[str, Pod] = {}

    def create(self, *pods: Pod) -> None:
        """Create pods."""
        for each in pods:
            self.pods[each.metadata.name] = each
            self.api.pods[each.metadata.name] = each
        cache(self.extender, *pods)

    def gang(self, name: str, count: int = 4, *, size: int = 4, namespace: str = "default") -> list[str]:
        """Create the pods of a gang; return their names."""
        names = [f"{name}{index}" for index in range(count)]
        self.create(*(member(each, name, size=size, namespace=namespace) for each in names))
        return names

    async def filter(self, name: str) -> FilterResult:
        """Ask which nodes take a pod."""
        return await self.extender.filter(Args.of_pod(self.pods[name], self.nodes))

    async def why(self, name: str) -> str:
        """Return the one reason of all nodes that do not take a pod, empty if one does."""
        result = await self.filter(name)
        if result.has_node:
            return ""
        (why,) = {*result.failed_nodes.values(), *result.failed_and_unresolvable_nodes.values()}
        return why

    def bind(self, name: str, node: str) -> asyncio.Task[str]:
        """Bind a pod; the result is the error."""
        return asyncio.create_task(bound(self.extender, self.pods[name], node))

    async def bring(self, *names: str) -> list[asyncio.Task[str]]:
        """Ask for nodes for each pod, and bind it to the first one, as kube-scheduler does."""
        tasks = []
        for name in names:
            nodes = (await self.filter(name)).nodenames
            assert nodes, name
            tasks.append(self.bind(name, nodes[0]))
            await settle()
        return tasks

    async def look(self, seconds: float = 0.0) -> None:
        """Let time pass."""
        self.clock.now += seconds
        await self.gathering.look()
        await settle()

    @property
    def reserved(self) -> set[str]:
        """The UIDs that hold cards."""
        return set(self.state.ledger.snapshot())

    @property
    def woken(self) -> set[str]:
        """The names of the rejected pods that are evaluated next."""
        return {each.pod.metadata.name for each in self.extender._rejected.changed()}


def member(name: str, gang: str, *, size: int = 4, memory: int = 1000, namespace: str = "default", **more: str) -> Pod:
    """Return a pod of a gang that takes a whole card."""
    keys = {"gang-min-members": str(size)} if size else {}
    annotations = {f"gpu.scheduling/{key}": value for key, value in (keys | more).items()}
    labels = {"gpu.scheduling/gang": gang}
    return pod(name, memory=memory, labels=labels, annotations=annotations, namespace=namespace)


async def settle() -> None:
    """Let tasks go on until they wait for something that a test brings."""
    for _ in range(50):
        await asyncio.sleep(0)
