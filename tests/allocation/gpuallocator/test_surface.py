"""Every name of TensorFusion's allocator that the library has, in snake case."""

from __future__ import annotations

import pytest

from allocation.gpuallocator import allocator, requests, strategies
from allocation.gpuallocator.allocator import GpuAllocator
from tests.allocation.support import gpu_allocator

MADE, _ = gpu_allocator.allocator()
METHODS = """
adjust_allocation alloc assume bind check_quota_and_filter check_quota_and_filter_single_node_preempt commit
compose_allocation_request dealloc dealloc_async dealloc_by_pod_identifier filter filter_with_preempt forget
get_allocation_info get_allocation_req_by_node_name get_matched_partition get_node_gpu_store
get_node_worker_store_snapshot get_quota_store get_scoring_strategy has_allocation init_gpu_and_quota_store
is_committed is_gpu_isolation_compatible is_ready is_scaling_quota_exceeded_error isolation_policy
list_non_using_nodes max_worker_per_node new_strategy notify_bound reconcile_allocation_state
refresh_gpu_node_capacity register_bind_handler rollback score select select_from_store set_allocator_ready
set_gang_waiting_probe set_isolation_policy set_max_worker_per_node setup_with_manager start_informer_for_gpu stop
sync_gpus_to_k8s unreserve_or_rollback wait_until_ready
"""


@pytest.mark.parametrize("name", METHODS.split())
def test_allocator_has_the_name(name: str) -> None:
    """It is a method or a property with a description."""
    found = getattr(GpuAllocator, name, None) or getattr(MADE, name)
    assert found.__doc__
    assert callable(found) or isinstance(found, property)


def test_constants_have_tensorfusions_values() -> None:
    """128 cards, three minutes, three strategies."""
    assert requests.MAX_GPU_COUNTER_PER_ALLOCATION == 128
    assert allocator.CLEAN_UP_CHECK_INTERVAL == 180
    known = (strategies.COMPACT_FIRST, strategies.LOW_LOAD_FIRST, strategies.NODE_COMPACT_GPU_LOW_LOAD)
    assert [strategies.new_strategy(each.name) for each in known] == [*known]
    assert strategies.new_strategy("unknown") == strategies.NODE_COMPACT_GPU_LOW_LOAD
