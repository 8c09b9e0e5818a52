"""GPUBindings: what admission changes in a pod whose application has its cards by them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from allocation import names
from allocation.settings import AllocationSettings, BindingSettings, BindingsMode
from tests.scheduler.support.app_pods import app_labels, gpu_binding
from tests.webhook.support.claims import CLAIMS, CORES, COUNT, MEMORY, PERCENT, claims, limits
from webhook.bindings import ClusterBindings, cluster_bindings

Make = Callable[..., Any]
APP = "app comfyui of alice"


def lookup(*bindings: Any, mode: BindingsMode = "labelled", require_namespace: bool = False) -> ClusterBindings:
    """Return a lookup whose copy has these bindings."""
    made = ClusterBindings(cast("Any", None), BindingSettings(mode, require_namespace))
    for each in bindings:
        made.set(each)
    return made


def of_alice(name: str, memory: str | None, **spec: Any) -> Any:
    """Return a binding of a card for alice's app."""
    more = {} if memory is None else {"memory": memory}
    return gpu_binding(name, f"GPU-{name}", owner="alice", **more, **spec)


def labelled(pod: dict[str, Any], owner: str = "alice", **annotations: str) -> dict[str, Any]:
    """Return a pod of a user's app."""
    metadata = {**pod["metadata"], "labels": app_labels(owner=owner), "annotations": annotations}
    return {**pod, "metadata": metadata}


def container(**resources: str) -> dict[str, Any]:
    """Return a container with requests equal to limits, by the names of the resources after the slash."""
    amounts = {f"nvidia.com/{name.replace('_', '-')}": amount for name, amount in resources.items()}
    return {"name": "main", "resources": {"limits": amounts, "requests": dict(amounts)}}


def granted(bindings: ClusterBindings, labels: dict[str, str]) -> list[tuple[str, int | None]]:
    """Return the cards that a pod with these labels gets, with their memory."""
    found = bindings.of_pod(labels, "team")
    assert found is not None
    return [(each.card, each.memory_mib) for each in found.grants]


def requests(pod: dict[str, Any]) -> dict[str, str]:
    """Return the requests of a pod's first container."""
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


def test_the_memory_of_the_bindings_replaces_that_of_the_pod(admit: Make, pod: Make) -> None:
    """In limits and in requests, with a warning that has both amounts; a percentage is removed."""
    bindings = lookup(of_alice("a", "8Gi"), of_alice("b", "8192"))
    for stated in ({"gpumem": "4000"}, {"gpumem_percentage": "50"}, {"gpumem": "4k", "gpumem_percentage": "50"}):
        verdict = admit(labelled(pod(container(gpu="1", **stated))), bindings=bindings)
        assert limits(verdict.pod) == requests(verdict.pod) == {COUNT: "1", MEMORY: "8192"}
        assert any(f"does not count: GPUBindings of {APP} set {MEMORY} 8192" in each for each in verdict.warnings)


def test_a_pod_that_states_no_memory_gets_that_of_the_bindings(admit: Make, pod: Make) -> None:
    """Without a warning, and without the cores of a whole card, which it would request otherwise."""
    sent = pod({"name": "main", "resources": {"limits": {COUNT: "1"}}})
    assert limits(admit(sent).pod) == {COUNT: "1", CORES: "100"}
    verdict = admit(labelled(sent), bindings=lookup(of_alice("a", "24k")))
    assert limits(verdict.pod) == {COUNT: "1", MEMORY: "24000"}
    assert not verdict.warnings


@pytest.mark.parametrize("canonical", ["24000", "24k"])
def test_admission_of_an_admitted_pod_changes_nothing(admit: Make, pod: Make, canonical: str) -> None:
    """Also as the API server returns it, which writes 24k for 24000."""
    bindings = lookup(of_alice("a", "24k"))
    once = admit(labelled(pod(container(gpu="1", gpumem="9"))), bindings=bindings).pod
    for amounts in once["spec"]["containers"][0]["resources"].values():
        amounts[MEMORY] = canonical
    again = admit(once, bindings=bindings)
    assert not again.operations
    assert not again.warnings


@pytest.mark.parametrize(
    ("bindings", "settings"),
    [
        (lookup(of_alice("a", "8Gi"), of_alice("b", "4Gi")), AllocationSettings()),
        (lookup(of_alice("a", "8Gi"), of_alice("b", None)), AllocationSettings()),
        (lookup(of_alice("a", None)), AllocationSettings()),
        (lookup(of_alice("a", "8Gi", namespace="other")), AllocationSettings()),
        (lookup(of_alice("a", "8Gi"), require_namespace=True), AllocationSettings()),
        (lookup(of_alice("a", "8Gi", podSelector=None)), AllocationSettings()),
        (lookup(gpu_binding("b", "GPU-b", owner="bob", memory="8Gi")), AllocationSettings()),
        (lookup(of_alice("a", "8000")), AllocationSettings(memory_factor=1024)),
    ],
)
def test_memory_that_is_not_known_leaves_the_pod_as_it_is(
    admit: Make, pod: Make, bindings: ClusterBindings, settings: AllocationSettings
) -> None:
    """Different amounts, no amount, another's bindings, or an amount that the resource cannot express."""
    verdict = admit(labelled(pod(container(gpu="1", gpumem="4"))), bindings=bindings, allocation=settings)
    assert limits(verdict.pod)[MEMORY] == "4"
    is_uneven = "GPUBindings set 8000 MiB, which is not a multiple of 1024 MiB"
    assert verdict.warnings == ([is_uneven] if settings.memory_factor > 1 else [])


def test_the_list_of_cards_is_removed(admit: Make, pod: Make) -> None:
    """A pod cannot choose the card of another application, nor keep others from the application's cards by its list."""
    sent = labelled(pod(container(gpu="1", gpumem="4")), **{names.USE_UUIDS: "GPU-of-bob", names.AVOID_UUIDS: "GPU-a"})
    verdict = admit(sent, bindings=lookup(of_alice("a", None)))
    assert verdict.pod["metadata"]["annotations"] == {names.AVOID_UUIDS: "GPU-a"}
    assert verdict.warnings == [
        f"annotation {names.USE_UUIDS} was removed: GPUBindings decide which cards pods of {APP} get"
    ]


def test_other_pods_are_not_concerned(admit: Make, pod: Make) -> None:
    """Without a label the pod keeps its list, and so does any pod where no binding counts."""
    plain = pod(container(gpu="1", gpumem="4"))
    plain["metadata"]["annotations"] = {names.USE_UUIDS: "GPU-a"}
    for sent, bindings in ((plain, lookup(of_alice("a", "8Gi"))), (labelled(plain), None)):
        verdict = admit(sent, bindings=bindings)
        assert verdict.operations == admit(sent).operations
        assert not verdict.warnings
    assert cluster_bindings(cast("Any", None), BindingSettings()) is None


def test_in_mode_required_a_pod_without_application_is_told_that_it_waits(admit: Make, pod: Make) -> None:
    """It is admitted, because the scheduler holds it; a pod without GPU is none of our concern."""
    bindings = lookup(mode="required")
    verdict = admit(pod(container(gpu="1", gpumem="4")), bindings=bindings)
    assert verdict.warnings == [f"the pod will wait: it has no owner application, which label {names.APP_NAME} names"]
    assert not admit(pod({"name": "web"}), bindings=bindings).warnings
    assert not admit(labelled(pod({"name": "web"})), bindings=lookup(of_alice("a", "8Gi"))).operations


def test_a_claim_keeps_its_amounts(admit: Make, pod: Make) -> None:
    """The scheduler limits the memory of whole cards to what the binding sets."""
    sent = labelled(claims(pod({"name": "main"}), "exclusive"), **{names.CLAIM: "exclusive", names.USE_UUIDS: "GPU-x"})
    verdict = admit(sent, claims=CLAIMS, bindings=lookup(of_alice("a", "8Gi")))
    assert limits(verdict.pod) == {COUNT: "1", PERCENT: "100", CORES: "100"}
    assert names.USE_UUIDS not in verdict.pod["metadata"]["annotations"]


def test_a_shared_claim_without_memory_gets_that_of_the_bindings(admit: Make, pod: Make) -> None:
    """The pod says what it gets; the scheduler knows the amount where bindings set several."""
    sent = labelled(pod({"name": "main"}), **{names.CLAIM: "slot"})
    verdict = admit(sent, claims=CLAIMS, bindings=lookup(of_alice("a", "2Gi")))
    assert limits(verdict.pod) == {COUNT: "1", MEMORY: "2048"}
    undecided = admit(sent, claims=CLAIMS, bindings=lookup(of_alice("a", "2Gi"), of_alice("b", "3Gi")))
    assert limits(undecided.pod) == {COUNT: "1"}


@pytest.mark.parametrize("stated", [{}, {"gpu": "1", "gpumem": "3000"}])
def test_a_shared_claim_that_differs_from_all_bindings_is_refused(
    admit: Make, pod: Make, stated: dict[str, str]
) -> None:
    """The message names both. Bindings of other cards may set another amount: the pod gets none of these cards."""
    sent = labelled(pod(container(**stated) if stated else {"name": "main"}), **{names.CLAIM: "shared"})
    verdict = admit(sent, claims=CLAIMS, bindings=lookup(of_alice("a", "2Gi"), of_alice("b", "3Gi")))
    assert verdict.code == 400
    assert verdict.message.startswith(
        "spec.devices.memoryMiB of GpuClaim shared holds '3000':"
        f" GPUBinding a gives {APP} 2048 MiB of card GPU-a; make both equal"
    )
    some = admit(sent, claims=CLAIMS, bindings=lookup(of_alice("a", "2Gi"), of_alice("b", "3000")))
    assert limits(some.pod) == {COUNT: "1", MEMORY: "3000", CORES: "30"}


def test_only_gpu_containers_get_memory(admit: Make, pod: Make) -> None:
    """A sidecar has no card, and an init container with one has the memory, too."""
    sent = labelled(pod(container(gpu="1"), {"name": "proxy"}, init=({**container(gpu="1"), "name": "load"},)))
    spec = admit(sent, bindings=lookup(of_alice("a", "2Gi"))).pod["spec"]
    assert spec["initContainers"][0]["resources"]["limits"] == {COUNT: "1", MEMORY: "2048"}
    assert "resources" not in spec["containers"][1]


def test_the_copy_follows_the_bindings() -> None:
    """Changed to another app, and deleted."""
    made, binding = lookup(), of_alice("a", "2Gi")
    labels = app_labels(owner="alice")
    made.set(binding)
    assert granted(made, labels) == [("GPU-a", 2048)]
    moved = gpu_binding("a", "GPU-a", app="other", owner="alice", memory="3Gi")
    made.set(moved, binding)
    assert granted(made, labels) == []
    assert granted(made, app_labels("other", "alice")) == [("GPU-a", 3072)]
    made.drop(moved)
    assert granted(made, app_labels("other", "alice")) == []
