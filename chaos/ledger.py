"""The scheduler's ledger, read from its metrics."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from chaos.replica import Replica
from chaos.share import Use

_MIB = 2**20


def believed(schedulers: list[Replica]) -> dict[str, Use]:
    """Return the use of each card in the leader's ledger, by UUID; empty if no scheduler leads."""
    for replica in schedulers:
        if uses := _read(replica):
            return uses
    return {}


def _read(replica: Replica) -> dict[str, Use]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{replica.http}/metrics", timeout=5) as response:
            families = {each.name: each for each in text_string_to_metric_families(response.read().decode())}
    except OSError:
        return {}

    def values(name: str) -> dict[str, float]:
        return {each.labels["device_uuid"]: each.value for each in families[name].samples}

    memory, slots = values("hami_gpu_memory_allocated_bytes"), values("hami_gpu_shared_count")
    cores = values("hami_gpu_core_allocated_ratio")
    return {uuid: Use(round(memory[uuid] / _MIB), round(10 * cores[uuid]), round(slots[uuid])) for uuid in memory}
