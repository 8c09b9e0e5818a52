"""A pod's request, read once from its spec.

The derivation is HAMi's (docs/hami.md), with errors where HAMi is silent: a value that cannot be read rejects the pod
instead of turning it into one that needs no GPU.
"""

import enum
from collections.abc import Iterable
from functools import partial
from typing import Self

import msgspec

from allocation import quantity
from allocation.errors import AllocationError, InvalidFieldError
from allocation.isolation import Isolation
from allocation.pod import Container, Containers
from allocation.quantity import Quantity
from allocation.settings import MOST_TFLOPS, AllocationSettings

MILLI_PER_PERCENT = 10
"""Compute is counted in millicards: 1 % of a card is 10, a whole card 1000."""
WHOLE_CARD = 1000
MILLI_PER_TFLOP = 1000
"""TFLOPs are counted in thousandths, so that those of a millicard are a whole number: the TFLOPs of a whole card."""
MAX_CARDS = 1024
"""Cards of one container, more than any node has. Each adds a variable to the environment, so they are limited."""


class Kind(enum.Enum):
    """How long a container lives, which decides whether its share adds up with those of the pod's other containers."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"


class ContainerRequest(msgspec.Struct, frozen=True):
    """What one container requests of each of its cards.

    Attributes:
        name: of the container.
        kind: its lifetime.
        field: its path in the pod, for messages.
        count: distinct cards; 0 for a container without a GPU.
        memory_mib: device memory per card; None if `memory_percent` applies.
        memory_percent: of the card's memory, 1 to 100.
        cores: compute per card in millicards; 0 reserves none, or as many as the `tflops` are.
        tflops: compute per card in thousandths of TFLOPs; 0 if it is not requested in TFLOPs.
        priority: of its kernels on a shared card, 0 (high) or 1 (low), which HAMi-core reads; None if not set.
        whole: whether it takes whole cards that no other pod uses, whatever others request of them.
        memory_limit_mib: the most device memory per card that it may use, if that is more than it requests; else 0.
        cores_limit: the same of compute, in millicards.
    """

    name: str
    kind: Kind
    field: str
    count: int = 0
    memory_mib: int | None = None
    memory_percent: int = 0
    cores: int = 0
    priority: int | None = None
    whole: bool = False
    tflops: int = 0
    memory_limit_mib: int = 0
    cores_limit: int = 0

    def at_limits(self) -> Self:
        """Return a request for as much as this one may use."""
        if not self.memory_limit_mib and not self.cores_limit:
            return self
        return msgspec.structs.replace(
            self,
            memory_mib=self.memory_limit_mib or self.memory_mib,
            cores=self.cores_limit or self.cores,
            memory_limit_mib=0,
            cores_limit=0,
        )

    def memory_on(self, card_memory_mib: int) -> int:
        """Return the MiB that this container takes of a card with `card_memory_mib` (a percentage rounds down)."""
        if self.memory_mib is not None:
            return self.memory_mib
        return card_memory_mib * self.memory_percent // 100

    def cores_on(self, rate: int) -> int:
        """Return the millicards that this container takes of a card of `rate` TFLOPs (rounded down)."""
        return self.tflops // rate if self.tflops and rate else self.cores

    def least_cores_on(self, rate: int) -> int:
        """Return the millicards that a MIG instance of a card of `rate` TFLOPs has at least for this container."""
        return -(-self.tflops // rate) if self.tflops and rate else self.cores


class PodRequest(msgspec.Struct, frozen=True):
    """A pod's request: all its containers, in the order of HAMi's allocation string, init containers first.

    Attributes:
        containers: the request of each.
        isolation: what is to enforce the limits of all of them.
    """

    containers: tuple[ContainerRequest, ...]
    isolation: Isolation = Isolation.NONE

    @property
    def requests_tflops(self) -> bool:
        """Whether any container requests its compute in TFLOPs."""
        return any(container.tflops for container in self.containers)

    @property
    def gpu_containers(self) -> tuple[ContainerRequest, ...]:
        """The containers that request a GPU."""
        if len(self.containers) == 1 and self.containers[0].count:
            return self.containers
        return tuple(container for container in self.containers if container.count)

    @property
    def is_bursting(self) -> bool:
        """Whether any container may use more than it requests."""
        return any(container.memory_limit_mib or container.cores_limit for container in self.containers)

    def at_limits(self) -> Self:
        """Return a request for as much as the containers may use."""
        if not self.is_bursting:
            return self
        return msgspec.structs.replace(self, containers=tuple(each.at_limits() for each in self.containers))

    def container(self, name: str) -> ContainerRequest | None:
        """Return the container called `name`."""
        return next((container for container in self.containers if container.name == name), None)

    def __bool__(self) -> bool:
        """Whether any container requests a GPU."""
        return any(container.count for container in self.containers)


def read_request(spec: Containers, settings: AllocationSettings) -> PodRequest:
    """Return the request of the pod with `spec`.

    Raises:
        InvalidFieldError: a GPU resource has an invalid value, or two containers have the same name.
    """
    read_one = partial(_read_container, settings=settings)
    containers = (
        *(
            read_one(container, f"spec.initContainers[{position}]", kind=_init_kind(container))
            for position, container in enumerate(spec.init_containers)
        ),
        *(
            read_one(container, f"spec.containers[{position}]", kind=Kind.REGULAR)
            for position, container in enumerate(spec.containers)
        ),
    )
    if len(containers) > 1:
        _reject_duplicate_names(containers)
    return PodRequest(containers)


def ignored_percentages(spec: Containers, settings: AllocationSettings) -> tuple[str, ...]:
    """Return a warning for each container whose percentage of memory is ignored, because it has an amount as well.

    Raises:
        InvalidFieldError: one of the two has an invalid value.
    """
    names = settings.resources
    lists = (("initContainers", spec.init_containers), ("containers", spec.containers))
    fields = [(f"spec.{kind}[{at}]", each) for kind, containers in lists for at, each in enumerate(containers)]
    return tuple(
        f"{field}: both {names.memory} and {names.memory_percentage} are set; {names.memory} is used"
        for field, container in fields
        if _raw(container, names.memory_percentage) is not None
        and _read_memory(container, field, settings)
        and _read(container, field, names.memory_percentage, unit="percent", minimum=1, maximum=100)
    )


def _reject_duplicate_names(containers: Iterable[ContainerRequest]) -> None:
    """Reject what an API server would reject, because an allocation identifies containers by name."""
    seen: set[str] = set()
    for container in containers:
        if container.name in seen:
            raise InvalidFieldError(
                field=f"{container.field}.name",
                value=container.name,
                expected="another container of the pod has this name",
                remedy="give each container its own name",
            )
        seen.add(container.name)


def requests_gpu(container: Container, settings: AllocationSettings) -> bool:
    """Whether `container` names a GPU resource, whatever its value."""
    names = settings.resources.gpu_resources()
    return any(
        name in resources
        for resources in (container.resources.limits, container.resources.requests)
        if resources
        for name in names
    )


def read_priority(container: Container, field: str, settings: AllocationSettings) -> int | None:
    """Return the priority that the container at `field` of its pod requests, or None.

    Raises:
        InvalidFieldError: the priority is neither 0 nor 1.
    """
    raw = _raw(container, settings.resources.priority)
    if raw is None:
        return None
    path = _path(container, field, settings.resources.priority)
    try:
        return quantity.whole(raw[1], field=path, unit="steps", maximum=1)
    except InvalidFieldError:
        expected, remedy = "it must be 0 (high) or 1 (low)", "change it, or remove it"
        raise InvalidFieldError(field=path, value=raw[1], expected=expected, remedy=remedy) from None


def _init_kind(container: Container) -> Kind:
    return Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT


def _read_container(container: Container, field: str, *, kind: Kind, settings: AllocationSettings) -> ContainerRequest:
    if not requests_gpu(container, settings) or _is_all_zero(container, settings):
        return ContainerRequest(name=container.name, kind=kind, field=field)
    names = settings.resources
    count = _read_count(container, field, settings)
    memory = _read_memory(container, field, settings)
    percent = _read(container, field, names.memory_percentage, unit="percent", minimum=1, maximum=100)
    cores = _read(container, field, names.cores, unit="percent", maximum=100)
    tflops = _read(container, field, names.tflops, unit="TFLOPs", maximum=MOST_TFLOPS) or 0
    priority = read_priority(container, field, settings)
    if count == 0:
        raise InvalidFieldError(
            field=_path(container, field, names.count),
            value=0,
            expected="a container that requests GPU memory, cores or TFLOPs needs at least one GPU",
            remedy=f"set {names.count} to 1 or more, or remove the other GPU resources",
        )
    if tflops and cores:
        raise InvalidFieldError(
            field=_path(container, field, names.tflops),
            value=tflops,
            expected=f"the container requests {names.cores}: {cores} as well, and its compute has one measure",
            remedy=f"remove {names.tflops} or {names.cores}",
        )
    if not memory and not percent:
        memory = settings.default_memory_mib
        percent = 0 if memory else 100
    if tflops:
        cores = 0
    elif cores is None:
        # A whole card is requested exclusively: HAMi's webhook adds gpucores 100 in exactly these cases.
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
        tflops=tflops * MILLI_PER_TFLOP,
    )


def _read_count(container: Container, field: str, settings: AllocationSettings) -> int | None:
    """Return the number of cards; the error of a part of one says how parts are requested."""
    names = settings.resources
    try:
        return _read(container, field, names.count, unit="GPUs", maximum=MAX_CARDS)
    except InvalidFieldError as error:
        percent = _percent(error.value)
        if not percent:
            raise
        remedy = f"for a part of a card write {names.count}: 1 and {names.memory_percentage}: {percent}"
        raise InvalidFieldError(field=error.field, value=error.value, expected=error.expected, remedy=remedy) from None


def _percent(value: object) -> int:
    """Return a part of one in percent, rounded up; 0 for anything else."""
    try:
        part = quantity.parse(str(value))
    except AllocationError:
        return 0
    return -int(-part * 100 // 1) if 0 < part < 1 else 0


def _is_all_zero(container: Container, settings: AllocationSettings) -> bool:
    """Return whether the container explicitly requests no GPU: a count of 0, and 0 of every other GPU resource."""
    names = settings.resources
    if _raw(container, names.count) is None:
        return False
    amounts = (_raw(container, name) for name in names.gpu_resources())
    return all(amount is None or quantity.is_zero(str(amount[1])) for amount in amounts)


def _raw(container: Container, name: str) -> tuple[str, Quantity] | None:
    """Return an amount and where it is written; limits take precedence over requests, as everywhere in HAMi."""
    for kind, resources in (("limits", container.resources.limits), ("requests", container.resources.requests)):
        if resources and name in resources:
            return kind, resources[name]
    return None


def _path(container: Container, field: str, name: str) -> str:
    raw = _raw(container, name)
    return f'{field}.resources.{raw[0] if raw else "limits"}["{name}"]'


def _read_memory(container: Container, field: str, settings: AllocationSettings) -> int | None:
    """Return MiB. A unit of the resource is `memory_factor` MiB, and the product must fit in 31 bits."""
    factor = settings.memory_factor
    unit = "MiB" if factor == 1 else f"units of {factor} MiB"
    amount = _read(container, field, settings.resources.memory, unit=unit, maximum=quantity.INT32_MAX // factor)
    return None if amount is None else amount * factor


def _read(
    container: Container, field: str, name: str, *, unit: str, minimum: int = 0, maximum: int = quantity.INT32_MAX
) -> int | None:
    raw = _raw(container, name)
    if raw is None:
        return None
    return quantity.whole(raw[1], field=_path(container, field, name), unit=unit, minimum=minimum, maximum=maximum)
