"""An allocator with its surroundings, and requests for it."""

from allocation.adjustment import Amounts
from allocation.gpuallocator.allocator import GpuAllocator
from allocation.gpuallocator.requests import AllocRequest, Isolation, PodMeta
from allocation.gpuallocator.stores import Gpu, SinkError
from allocation.gpuallocator.strategies import StrategyConfig
from allocation.inventory import Card, NodeInventory
from allocation.label_selector import of_labels

GIB = 1024


class Surroundings:
    """The clock, the pods of the API and the objects that status is written to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.gone: set[str] = set()
        self.written: dict[str, Gpu] = {}
        self.writes = 0
        self.failures: list[SinkError] = []

    def exists(self, pod: PodMeta) -> bool:
        """Return whether the API has a pod."""
        return pod.uid not in self.gone

    def write(self, gpu: Gpu) -> None:
        """Take the status of a card, or fail."""
        self.writes += 1
        if self.failures:
            raise self.failures.pop(0)
        self.written[gpu.name] = gpu


def inventory(node: str, *cards: Card) -> NodeInventory:
    """Return the report of a node."""
    return NodeInventory(node, cards)


def card(node: str, index: int, **changes: object) -> Card:
    """Return a card of 80 GiB."""
    fields = {"uuid": f"{node}-{index}", "index": index, "memory_mib": 80 * GIB, "model": "A100", **changes}
    return Card(**fields)  # type: ignore[arg-type]


def allocator(
    nodes: int = 2, *, cards: int = 2, mode: str = "", config: StrategyConfig | None = None
) -> tuple[GpuAllocator, Surroundings]:
    """Return an allocator that is ready, with a pool `p` of nodes a, b, … of equal cards."""
    around = Surroundings()
    made = GpuAllocator(
        clock=lambda: around.now,
        pods=around,
        sink=around,
        pools={"p": of_labels({"pool": "p"})},
        placement_modes={"p": mode},
        config=config or StrategyConfig(),
    )
    names = [chr(ord("a") + node) for node in range(nodes)]
    reports = [inventory(node, *(card(node, index) for index in range(cards))) for node in names]
    made.setup_with_manager([(report, {"pool": "p", "zone": report.node}) for report in reports], [])
    return made, around


def request(
    name: str = "x",
    *,
    memory: int = 10 * GIB,
    cores: int = 100,
    tflops: int = 0,
    limit: Amounts | None = None,
    count: int = 1,
    isolation: Isolation = "soft",
    namespace: str = "ns",
    **more: object,
) -> AllocRequest:
    """Return a request of the pod `name`, whose UID is `uid-name`."""
    amounts = Amounts(memory, cores, tflops)
    fields = {"pod": PodMeta(f"uid-{name}", namespace, name), "pool": "p", "request": amounts}
    fields |= {"limit": limit or amounts, "count": count, "isolation": isolation, **more}
    return AllocRequest(**fields)  # type: ignore[arg-type]
