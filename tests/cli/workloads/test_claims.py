"""The claims of manifest files, and which of them a pod mounts."""

from typing import Any

from cli.workloads.claims import claims_in, gpu_claim, mounted


def claim(name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    """Return a PersistentVolumeClaim."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def of_gpus(name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    """Return a GpuClaim."""
    return {**claim(name, namespace, **spec), "apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim"}


def pod(*names: str, namespace: str = "") -> dict[str, Any]:
    """Return a pod that mounts claims, and a volume without one."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    metadata = {"name": "p", **({"namespace": namespace} if namespace else {})}
    return {"metadata": metadata, "spec": {"volumes": [*volumes, {"name": "scratch", "emptyDir": {}}, None]}}


def test_claims_are_found_in_documents_and_lists() -> None:
    """Objects of other kinds are left out."""
    inner = {"apiVersion": "v1", "kind": "List", "items": [claim("b"), {"apiVersion": "v1", "kind": "Pod"}, None]}
    listed = {"apiVersion": "v1", "kind": "List", "items": [claim("a"), inner, of_gpus("c")]}
    assert [each["metadata"]["name"] for each in claims_in(listed)] == ["a", "b", "c"]
    assert list(claims_in({"apiVersion": "example/v1", "kind": "PersistentVolumeClaim"})) == []
    assert list(claims_in("text")) == []


def test_a_pod_has_only_the_claims_that_it_mounts() -> None:
    """Each once, the first of a name; claims of other namespaces have the same names."""
    claims = (claim("a", "other"), claim("a", "team", first=True), claim("a"), claim("b"), claim("c"))
    assert mounted(pod("a", "b"), claims, namespace="team") == (claims[1], claims[3])
    assert mounted(pod("a", namespace="other"), claims, namespace="team") == (claims[0],)
    assert mounted({"spec": 3}, claims, namespace="team") == ()


def test_a_pod_has_the_gpu_claim_that_it_names() -> None:
    """It is of the pod's namespace; a claim of a volume may have the same name."""
    claims = (claim("a", "team"), of_gpus("a", "other"), of_gpus("a", "team", first=True), of_gpus("a"), of_gpus("b"))
    named = pod("a")
    named["metadata"]["annotations"] = {"gpu.scheduling/claim": "a"}
    assert gpu_claim(named, claims, namespace="team") == claims[2]
    assert mounted(named, claims, namespace="team") == (claims[0],)
    assert gpu_claim(pod("a"), claims, namespace="team") is None
    named["metadata"]["annotations"] = {"gpu.scheduling/claim": "c"}
    assert gpu_claim(named, claims, namespace="team") is None
