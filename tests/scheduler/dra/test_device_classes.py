"""Classes that satisfy a resource of ours are noticed, and kube-scheduler's devices keep a pod from being bound."""

from __future__ import annotations

from typing import Any

import msgspec

from cluster.dra import DeviceClass, ResourceClaim
from cluster.errors import ApiError
from scheduler.dra.device_classes import DeviceClasses
from scheduler.objects import Pod
from tests.scheduler.support.builders import pod, state
from tests.scheduler.support.extending import Bindings, bound, cache, extending

CLASS = "gpu.nvidia.com"
CLAIM = "p-extended-resources-x"
REMEDY = "DeviceClass gpu.nvidia.com satisfies nvidia.com/gpu, too: remove its extendedResourceName"


def device_class(resource: str = "nvidia.com/gpu", name: str = CLASS) -> DeviceClass:
    """Return a DeviceClass that satisfies a resource."""
    return msgspec.convert({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}, DeviceClass)


def allocated() -> Pod:
    """Return a pod to which kube-scheduler has allocated a device."""
    status = {
        "resourceClaimName": CLAIM,
        "requestMappings": [{"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r"}],
    }
    return pod("p", memory=100, status={"extendedResourceClaimStatus": status})


class Claims(Bindings):
    """An API server with pods and ResourceClaims.

    Attributes:
        claims: the names of the claims.
        reads: the paths that were read.
    """

    def __init__(self, *claims: str) -> None:
        super().__init__()
        self.claims = claims
        self.reads: list[str] = []
        self.refusal: ApiError | None = None

    async def request(self, method: str, path: str, **how: Any) -> bytes:
        """Show a claim, or what the server without claims shows."""
        if method == "GET":
            self.reads.append(path)
        name = path.rpartition("/")[2]
        if "/resourceclaims/" in path and self.refusal is not None:
            raise self.refusal
        if "/resourceclaims/" in path and name in self.claims:
            return msgspec.json.encode(msgspec.convert({"metadata": {"name": name}}, ResourceClaim))
        return await super().request(method, path, **how)


def test_only_classes_for_our_resources_count() -> None:
    """Each is reported once, and its end is noticed, also where the class only loses the resource."""
    found: list[str] = []
    ended: list[bool] = []
    classes = DeviceClasses(
        ["nvidia.com/gpu"],
        on_found=lambda each: found.append(each.metadata.name),
        on_ended=lambda: ended.append(True),
    )
    for each in (device_class(), device_class(), device_class("example.com/other", "other"), device_class("", "plain")):
        classes.set(each)
    assert not ended
    assert (found, list(classes)) == ([CLASS], [(CLASS, "nvidia.com/gpu")])
    assert classes.conflict(["nvidia.com/gpu"]) == REMEDY
    assert classes.conflict(["nvidia.com/gpumem"]) == ""
    classes.set(device_class(""))
    assert (list(classes), len(ended)) == ([], 1)
    classes.drop(device_class())
    assert len(ended) == 1
    classes.set(device_class())
    classes.drop(device_class())
    assert (list(classes), len(ended)) == ([], 2)
    assert classes.has_any
    assert not DeviceClasses(["nvidia.com/gpu"], on_found=found.append, on_ended=found.clear).has_any


async def test_pod_with_devices_by_dra_is_not_bound() -> None:
    """The reason names the class; without one, the ResourceClaim."""
    api, asks = Claims(CLAIM), allocated()
    api.pods["p"] = asks
    made = extending(state("n1"), api)
    without_class = await bound(made, asks, "n1")
    assert f"DraAllocated: ResourceClaim {CLAIM} has devices for nvidia.com/gpu, too" in without_class
    made._state.device_classes.set(device_class())
    assert await bound(made, asks, "n1") == f"pod default/p: DraAllocated: {REMEDY}"
    assert api.written == []
    assert list(made._state.ledger.reservations()) == []


async def test_pod_whose_devices_were_given_back_is_bound() -> None:
    """Its status still names the claim, which kube-scheduler has deleted."""
    api, asks = Claims(), allocated()
    api.pods["p"] = asks
    assert await bound(extending(state("n1"), api), asks, "n1") == ""


async def test_pod_is_not_bound_while_its_claim_cannot_be_read() -> None:
    """A right may be missing, or the API server may not answer."""
    api, asks = Claims(CLAIM), allocated()
    api.pods["p"] = asks
    api.refusal = ApiError(request="GET", status=403, reason="Forbidden", message="no right")
    refusal = await bound(extending(state("n1"), api), asks, "n1")
    assert f"DraAllocated: whether its ResourceClaim {CLAIM} exists is unknown" in refusal


async def test_cached_pod_is_read_again_only_while_its_devices_may_be_unknown() -> None:
    """One request more per Binding in that case, and none otherwise."""
    for reads_live in (False, True):
        api, cached = Claims(CLAIM), pod("p", memory=100)
        api.pods["p"] = allocated()
        made = extending(state("n1"), api, reads_live=reads_live)
        cache(made, cached)
        refusal = await bound(made, cached, "n1")
        assert ("DraAllocated" in refusal) == reads_live
        assert len(api.reads) == (2 if reads_live else 0)
