"""GpuQuotas."""

import msgspec

from cluster.gpu_quota import GpuQuota


def gpu_quota(name: str = "q", *, namespace: str = "default", **spec: object) -> GpuQuota:
    """Return a GpuQuota as the API server shows it."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "generation": 1}
    return msgspec.convert({"metadata": metadata, "spec": spec}, GpuQuota)
