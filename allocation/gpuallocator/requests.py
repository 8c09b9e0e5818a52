"""What a pod requests, read from TensorFusion's annotations.

Device memory is in MiB, and compute in millicards or in thousandths of TFLOPs, as everywhere in this library; all of
them are of each card.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, TypeVar, get_args

import msgspec

from allocation import quantity
from allocation.adjustment import NOTHING, Amounts
from allocation.constraints import CardKind, Constraints
from allocation.errors import AllocationError, InvalidFieldError, invalid_annotation
from allocation.label_selector import Selector
from allocation.request import MILLI_PER_PERCENT, MILLI_PER_TFLOP, WHOLE_CARD, ContainerRequest, Kind, PodRequest
from allocation.settings import MOST_TFLOPS, Weights

PREFIX: Final = "tensor-fusion.ai/"
MAX_GPU_COUNTER_PER_ALLOCATION: Final = 128
VENDOR: Final = "NVIDIA"
"""The vendor of every card that agents report."""
_MIB: Final = 2**20

Qos = Literal["low", "medium", "high", "critical"]
Isolation = Literal["shared", "soft", "hard", "partitioned"]
Word = TypeVar("Word", bound=str)


class PodMeta(msgspec.Struct, frozen=True):
    """A pod, as far as its request is read from it.

    Attributes:
        uid: of the pod.
        namespace: of the pod.
        name: of the pod.
        annotations: of the pod.
        workload: the name of the workload that it belongs to; empty if none is known.
        affinity: the labels that its node must have.
    """

    uid: str
    namespace: str
    name: str
    annotations: Mapping[str, str] = {}
    workload: str = ""
    affinity: Selector = ()


class AllocRequest(msgspec.Struct, frozen=True):
    """What one pod requests.

    Attributes:
        pod: the pod.
        pool: the name of the pool of nodes; empty if the pod names none.
        request: what is reserved of each card.
        limit: what the pod may use of each card at most.
        count: cards, 1 to 128.
        indices: the indexes of the cards on their node that it accepts; empty accepts all.
        model: the exact name of the model; empty accepts all.
        vendor: of the cards; empty accepts all.
        qos: the importance of the pod.
        isolation: `shared` takes whole idle cards, `soft` and `hard` parts of cards, `partitioned` MIG instances.
        partition_template: the MIG profile of `partitioned`; empty accepts the smallest that is large enough.
        gpu_names: the UUIDs of the cards that it has.
    """

    pod: PodMeta
    pool: str
    request: Amounts = NOTHING
    limit: Amounts = NOTHING
    count: int = 1
    indices: frozenset[int] = frozenset()
    model: str = ""
    vendor: str = ""
    qos: Qos = "medium"
    isolation: Isolation = "soft"
    partition_template: str = ""
    gpu_names: tuple[str, ...] = ()

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return self.pod.uid

    @property
    def container(self) -> ContainerRequest:
        """The request as that of one container, which is how the scheduler's functions have it."""
        return self._container(self.request)

    def as_pod(self, amounts: Amounts | None = None) -> PodRequest:
        """Return the request as that of a pod, with other `amounts` if they are given."""
        return PodRequest((self._container(self.request if amounts is None else amounts),))

    @property
    def constraints(self) -> Constraints:
        """Which cards the pod accepts, as far as the scheduler's functions decide it."""
        kind: CardKind = "instance" if self.isolation == "partitioned" else "card"
        return Constraints("binpack", ("binpack",), Weights(), card_kind=kind, profile=self.partition_template)

    def _container(self, amounts: Amounts) -> ContainerRequest:
        field = "metadata.annotations"
        if self.isolation == "shared":
            return ContainerRequest("main", Kind.REGULAR, field, self.count, None, 100, WHOLE_CARD, whole=True)
        memory = amounts.memory_mib or None
        return ContainerRequest(
            "main", Kind.REGULAR, field, self.count, memory, 0, amounts.cores, tflops=amounts.tflops
        )


def compose_allocation_request(pod: PodMeta) -> AllocRequest:
    """Return the request of a pod. A missing request is the limit, and the other way round.

    Raises:
        InvalidFieldError: an annotation cannot be read.
    """
    get = pod.annotations.get
    isolation = _word(pod, "isolation", get_args(Isolation), "soft")
    request, limit = _amounts(pod, "request"), _amounts(pod, "limit")
    return AllocRequest(
        pod=pod,
        pool=get(f"{PREFIX}gpupool", ""),
        request=_first(request, limit),
        limit=_first(limit, request),
        count=_count(pod),
        indices=_indices(pod),
        model=get(f"{PREFIX}gpu-model", ""),
        vendor=get(f"{PREFIX}vendor", ""),
        qos=_word(pod, "qos", get_args(Qos), "medium"),
        isolation=isolation,
        partition_template=get(f"{PREFIX}partition-id", "") if isolation == "partitioned" else "",
        gpu_names=tuple(name for name in get(f"{PREFIX}gpu-ids", "").split(",") if name),
    )


def hard_percent(limit: int, capacity: int) -> int:
    """Return the percentage of a card's compute that `hard` isolation allows: rounded up, 1 to 100."""
    return min(max(-(-limit * 100 // capacity) if capacity else 100, 1), 100)


def _count(pod: PodMeta) -> int:
    key = f"{PREFIX}gpu-count"
    text = pod.annotations.get(key)
    if text is None:
        return 1
    try:
        return quantity.whole(text, field=key, unit="cards", minimum=1, maximum=MAX_GPU_COUNTER_PER_ALLOCATION)
    except InvalidFieldError:
        expected = f"invalid gpu count annotation: it must be from 1 to {MAX_GPU_COUNTER_PER_ALLOCATION}"
        raise invalid_annotation(key, text, expected=expected) from None


def _indices(pod: PodMeta) -> frozenset[int]:
    key = f"{PREFIX}gpu-indices"
    text = pod.annotations.get(key, "")
    try:
        return frozenset(quantity.whole(word.strip(), field=key, unit="cards") for word in text.split(",") if text)
    except InvalidFieldError:
        raise invalid_annotation(key, text, expected="it must be indexes of cards, such as 0,1") from None


def _word(pod: PodMeta, name: str, words: tuple[Word, ...], default: Word) -> Word:
    key = f"{PREFIX}{name}"
    text = pod.annotations.get(key)
    for word in words:
        if text == word:
            return word
    if text:
        raise invalid_annotation(key, text, expected=f"it must be one of {', '.join(words)}")
    return default


def check_measure(amounts: Amounts) -> None:
    """Check that compute is requested in one measure.

    Raises:
        AllocationError: it is in both.
    """
    if amounts.cores and amounts.tflops:
        raise AllocationError(f"compute is requested as {amounts}: leave out one of the measures")


class _Stated(msgspec.Struct, frozen=True):
    """The MiB of each card, and its compute in one of the measures; None where nothing is said."""

    memory_mib: int | None
    compute: Amounts | None


def _first(stated: _Stated, other: _Stated) -> Amounts:
    """Return the amounts that are `stated`, and for a missing one the `other`."""
    memory = stated.memory_mib if stated.memory_mib is not None else other.memory_mib
    return Amounts(memory or 0) + (stated.compute or other.compute or NOTHING)


def _amounts(pod: PodMeta, kind: Literal["request", "limit"]) -> _Stated:
    """Return what the pod requests of each card, or may use, rounded up."""
    memory = _amount(pod, f"vram-{kind}", "memory, such as 10Gi")
    percent = _amount(pod, f"compute-percent-{kind}", "a percentage from 0 to 100", most=100)
    tflops = _amount(pod, f"tflops-{kind}", f"TFLOPs, from 0 to {MOST_TFLOPS}", most=MOST_TFLOPS)
    if percent is not None and tflops is not None:
        key, remedy = f"{PREFIX}tflops-{kind}", f"remove it, or {PREFIX}compute-percent-{kind}"
        expected = f"{PREFIX}compute-percent-{kind} says the same in percent"
        raise invalid_annotation(key, pod.annotations[key], expected=expected, remedy=remedy)
    compute = None
    if tflops is not None:
        compute = Amounts(tflops=-int(-tflops * MILLI_PER_TFLOP // 1))
    elif percent is not None:
        compute = Amounts(cores=-int(-percent * MILLI_PER_PERCENT // 1))
    return _Stated(None if memory is None else -int(-memory // _MIB), compute)


def _amount(pod: PodMeta, name: str, unit: str, most: int | None = None) -> Fraction | None:
    key = f"{PREFIX}{name}"
    text = pod.annotations.get(key)
    if text is None:
        return None
    try:
        value = quantity.parse(text)
    except AllocationError:
        value = Fraction(-1)
    if value < 0 or (value > most if most is not None else value > quantity.INT32_MAX * _MIB):
        raise invalid_annotation(key, text, expected=f"it must be {unit}")
    return value
