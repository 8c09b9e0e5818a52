"""What a pod asks for, read once from its spec.

The derivation is HAMi's (hami.md 1.4) with an error where HAMi is silent: a value that cannot be read refuses the
pod instead of turning it into one that needs no GPU.
"""

import enum
from collections.abc import Callable, Iterable

import msgspec

from allocation import quantity
from allocation.errors import InvalidFieldError
from allocation.pod import Container, Containers
from allocation.quantity import Quantity
from allocation.settings import AllocationSettings

MILLI_PER_PERCENT = 10
"""Compute is counted in millicards: 1 % of a card is 10, a whole card 1000."""
WHOLE_CARD = 1000
MOST_CARDS = 1024
"""Cards of one container, more than any node has. Each is a variable of its own, so the number must have an end."""


class Kind(enum.Enum):
    """How long a container lives, which decides how its share adds up with the others of its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


class ContainerRequest(msgspec.Struct, frozen=True):
    """What one container asks of each of its cards.

    Attributes:
        name: the container.
        kind: its lifetime.
        field: where it stands in the pod, for messages.
        count: distinct cards; 0 for a container without GPU.
        memory_mib: device memory per card, or None where `memory_percent` rules.
        memory_percent: of the card's memory, 1 to 100.
        cores: compute per card in millicards; 0 asks for none in particular.
        priority: of its kernels on a shared card, 0 (high) or 1 (low), which HAMi-core reads; None where unsaid.
    """

    name: str
    kind: Kind
    field: str
    count: int = 0
    memory_mib: int | None = None
    memory_percent: int = 0
    cores: int = 0
    priority: int | None = None

    def memory_on(self, card_memory_mib: int) -> int:
        """Answer the MiB that this container takes on a card of `card_memory_mib` (a percentage rounds down)."""
        if self.memory_mib is not None:
            return self.memory_mib
        return card_memory_mib * self.memory_percent // 100


class PodRequest(msgspec.Struct, frozen=True):
    """What a pod asks for: all containers in the order of HAMi's allocation string, init containers first."""

    containers: tuple[ContainerRequest, ...]

    @property
    def gpu_containers(self) -> tuple[ContainerRequest, ...]:
        """The containers that ask for a GPU."""
        return tuple(container for container in self.containers if container.count)

    def container(self, name: str) -> ContainerRequest | None:
        """Answer the container called `name`."""
        return next((container for container in self.containers if container.name == name), None)

    def __bool__(self) -> bool:
        """Whether the pod asks for a GPU at all."""
        return any(container.count for container in self.containers)


def _ignore(_warning: str) -> None:
    pass


def read_request(
    spec: Containers, settings: AllocationSettings, *, warn: Callable[[str], None] = _ignore
) -> PodRequest:
    """Answer what the pod with `spec` asks for.

    `warn` is called with what a user should know although the pod is accepted.

    Raises:
        InvalidFieldError: a resource of ours holds what it may not hold, or two containers have one name.
    """
    containers = (
        *(
            _read_container(container, f"spec.initContainers[{position}]", _init_kind(container), settings, warn)
            for position, container in enumerate(spec.init_containers)
        ),
        *(
            _read_container(container, f"spec.containers[{position}]", Kind.REGULAR, settings, warn)
            for position, container in enumerate(spec.containers)
        ),
    )
    if len(containers) > 1:
        _refuse_namesakes(containers)
    return PodRequest(containers)


def _refuse_namesakes(containers: Iterable[ContainerRequest]) -> None:
    """Refuse what an API server would, before a share is given to a name that two containers have."""
    seen: set[str] = set()
    for container in containers:
        if container.name in seen:
            raise InvalidFieldError(
                field=f"{container.field}.name",
                value=container.name,
                expected="another container of the pod has this name",
                remedy="give each its own",
            )
        seen.add(container.name)


def asks_for_gpu(container: Container, settings: AllocationSettings) -> bool:
    """Whether `container` names one of our resources, whatever it holds."""
    names = settings.resources.asking()
    return any(
        name in resources
        for resources in (container.resources.limits, container.resources.requests)
        if resources
        for name in names
    )


def read_priority(container: Container, field: str, settings: AllocationSettings) -> int | None:
    """Answer the priority that the container at `field` of its pod asks for, None where it says nothing.

    Raises:
        InvalidFieldError: it is neither 0 nor 1.
    """
    unit = "steps below the highest priority, 0 for high or 1 for low,"
    return _read(container, field, settings.resources.priority, unit=unit, maximum=1)


def _init_kind(container: Container) -> Kind:
    return Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT


def _read_container(
    container: Container, field: str, kind: Kind, settings: AllocationSettings, warn: Callable[[str], None]
) -> ContainerRequest:
    nothing = ContainerRequest(name=container.name, kind=kind, field=field)
    if not asks_for_gpu(container, settings):
        return nothing
    names = settings.resources
    count = _read(container, field, names.count, unit="GPUs", maximum=MOST_CARDS)
    memory = _read_memory(container, field, settings)
    percent = _read(container, field, names.memory_percentage, unit="percent", minimum=1, maximum=100)
    cores = _read(container, field, names.cores, unit="percent", maximum=100)
    priority = read_priority(container, field, settings)
    if count == 0:
        if memory or percent or cores:
            raise InvalidFieldError(
                field=_path(container, field, names.count),
                value=0,
                expected="a container that asks for GPU memory or cores needs at least one GPU",
                remedy=f"set {names.count} to 1 or more, or remove the other GPU resources",
            )
        return nothing
    if memory and percent:
        warn(f"{field}: both {names.memory} and {names.memory_percentage} are set; {names.memory} is used")
    if not memory and not percent:
        memory = settings.default_memory_mib
        percent = 0 if memory else 100
    if cores is None:
        # A card asked whole is asked alone: HAMi's webhook adds gpucores 100 in exactly these cases.
        cores = 100 if percent == 100 and not memory else settings.default_cores_percent
    return ContainerRequest(
        name=container.name,
        kind=kind,
        field=field,
        count=settings.default_count if count is None else count,
        memory_mib=memory or None,
        memory_percent=0 if memory else (percent or 0),
        cores=cores * MILLI_PER_PERCENT,
        priority=priority,
    )


def _raw(container: Container, name: str) -> tuple[str, Quantity] | None:
    """Answer limits before requests, as everywhere in HAMi."""
    for kind, resources in (("limits", container.resources.limits), ("requests", container.resources.requests)):
        if resources and name in resources:
            return kind, resources[name]
    return None


def _path(container: Container, field: str, name: str) -> str:
    found = _raw(container, name)
    return f'{field}.resources.{found[0] if found else "limits"}["{name}"]'


def _read_memory(container: Container, field: str, settings: AllocationSettings) -> int | None:
    """Answer MiB. A unit of the resource is `memory_factor` of them, and the product still has to fit 31 bits."""
    factor = settings.memory_factor
    unit = "MiB" if factor == 1 else f"units of {factor} MiB"
    amount = _read(container, field, settings.resources.memory, unit=unit, maximum=quantity.INT32_MAX // factor)
    return None if amount is None else amount * factor


def _read(
    container: Container, field: str, name: str, *, unit: str, minimum: int = 0, maximum: int = quantity.INT32_MAX
) -> int | None:
    found = _raw(container, name)
    if found is None:
        return None
    return quantity.whole(found[1], field=_path(container, field, name), unit=unit, minimum=minimum, maximum=maximum)
