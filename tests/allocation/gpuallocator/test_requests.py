"""Requests are read from TensorFusion's annotations, and what cannot be read is an error that names the annotation."""

from __future__ import annotations

import pytest

from allocation.adjustment import Amounts
from allocation.errors import InvalidFieldError
from allocation.gpuallocator.requests import AllocRequest, PodMeta, compose_allocation_request, hard_percent


def compose(**annotations: str) -> AllocRequest:
    """Return the request of a pod with annotations of TensorFusion's prefix."""
    keys = {f"tensor-fusion.ai/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return compose_allocation_request(PodMeta("uid", "ns", "pod", keys))


def test_pod_that_says_nothing_gets_the_defaults() -> None:
    """One card, medium, soft."""
    made = compose()
    assert (made.count, made.qos, made.isolation, made.pool) == (1, "medium", "soft", "")
    assert made.request == made.limit == Amounts()


@pytest.mark.parametrize("count", ["0", "-1", "129", "x", "1.5", ""])
def test_counts_out_of_range_are_refused(count: str) -> None:
    """The message has TensorFusion's reason."""
    with pytest.raises(InvalidFieldError, match=r"gpu-count.*invalid gpu count annotation: it must be from 1 to 128"):
        compose(gpu_count=count)


@pytest.mark.parametrize("count", [1, 128])
def test_counts_within_the_range_are_read(count: int) -> None:
    """Both ends included."""
    assert compose(gpu_count=str(count)).count == count


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vram_request", "much"),
        ("vram_limit", "-1Gi"),
        ("vram_limit", "1E"),
        ("compute_percent_request", "101"),
        ("compute_percent_limit", "half"),
        ("gpu_indices", "0,x"),
        ("isolation", "none"),
        ("qos", "urgent"),
        ("tflops_request", "-1"),
        ("tflops_limit", "fast"),
        ("tflops_request", "1000001"),
    ],
)
def test_values_that_cannot_be_read_are_refused(name: str, value: str) -> None:
    """They are not zero, as TensorFusion has it."""
    with pytest.raises(InvalidFieldError, match=f"tensor-fusion.ai/{name.replace('_', '-')}"):
        compose(**{name: value})


def test_every_annotation_is_read() -> None:
    """Memory is rounded up to MiB, compute to millicards; a missing request is the limit, and the other way round."""
    made = compose(
        gpupool="pool",
        gpu_count="2",
        gpu_indices="0, 3",
        gpu_model="A100",
        vendor="NVIDIA",
        vram_request="1000000001",
        vram_limit="2Gi",
        compute_percent_limit="12.55",
        isolation="partitioned",
        partition_id="1g.10gb",
        qos="high",
        gpu_ids="GPU-1,GPU-2",
    )
    assert (made.pool, made.count, made.indices, made.model, made.vendor) == ("pool", 2, {0, 3}, "A100", "NVIDIA")
    assert (made.request, made.limit) == (Amounts(954, 126), Amounts(2048, 126))
    assert compose(vram_request="1Gi").limit == Amounts(1024, 0)
    assert (made.isolation, made.partition_template, made.qos) == ("partitioned", "1g.10gb", "high")
    assert made.gpu_names == ("GPU-1", "GPU-2")
    assert compose(partition_id="1g.10gb").partition_template == ""


def test_compute_is_in_tflops_or_in_percent() -> None:
    """Exactly, in thousandths; a missing limit has the measure of the request, and both measures of one are refused."""
    assert compose(tflops_request="10").limit == Amounts(tflops=10_000)
    made = compose(tflops_request="500m", compute_percent_limit="50")
    assert (made.request, made.limit) == (Amounts(tflops=500), Amounts(cores=500))
    assert made.container.tflops == 500
    with pytest.raises(InvalidFieldError, match="tensor-fusion.ai/compute-percent-request says the same in percent"):
        compose(tflops_request="10", compute_percent_request="10")


@pytest.mark.parametrize(
    ("limit", "capacity", "percent"),
    [(0, 1000, 1), (1, 1000, 1), (101, 1000, 11), (1000, 1000, 100), (9, 8, 100), (1, 0, 100)],
)
def test_hard_percentage_is_rounded_up_from_1_to_100(limit: int, capacity: int, percent: int) -> None:
    """A card without compute has no part that could be limited."""
    assert hard_percent(limit, capacity) == percent
