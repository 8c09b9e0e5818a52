"""A pod cannot escape what enforces its limits, also while the webhook is down; here it does not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allocation.names import ISOLATION
from lab import wait
from lab.client import client
from tests.policies.support.guards import IN, OUT, TENANT
from tests.policies.support.pods import prepared
from tests.support import namespaces
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.policies.support.guards import Guarded

pytestmark = pytest.mark.apiserver
_READ_BY = {"cuda": "NVIDIA_GPU_MEMORY_LIMIT", "mps": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"}


@pytest.mark.parametrize("isolation", ["cuda", "mps"])
def test_variables_of_an_isolation_are_required_by_reference(guarded: Guarded, isolation: str) -> None:
    """A pod written by hand with the annotation alone, or with a larger limit, would start without one."""
    name = _READ_BY[isolation]
    sent = prepared(isolation=isolation)
    assert guarded.refusal(sent) == ""
    env = sent["spec"]["containers"][0]["env"]
    entry = next(each for each in env if each["name"] == name)
    place = env.index(entry)
    env[place] = {"name": name, "value": "999999"}
    assert "did not prepare this pod" in guarded.refusal(sent)
    del env[place]
    assert "did not prepare this pod" in guarded.refusal(sent)


@pytest.mark.parametrize("isolation", ["", "none", "hami-core", "mig"])
@pytest.mark.parametrize("name", _READ_BY.values())
def test_variables_of_another_isolation_are_refused(guarded: Guarded, isolation: str, name: str) -> None:
    """They would act on nodes that were not chosen for them."""
    sent = prepared(isolation=isolation)
    assert guarded.refusal(sent) == ""
    sent["spec"]["containers"][0]["env"].append({"name": name, "value": "1"})
    assert f"sets {name}, which weakens the limits" in guarded.refusal(sent)


def test_isolation_of_a_pod_never_changes(guarded: Guarded) -> None:
    """A pod that waits could otherwise leave the nodes that limit it, or share the cards of another isolation."""
    for name, isolation in (("isolated", "cuda"), ("isolated-not", "")):
        sent = prepared(isolation=isolation)
        sent["metadata"]["name"] = name
        guarded.api().create(sent, namespace=IN)
    for user in ("", TENANT):
        for name, value in (("isolated", "none"), ("isolated", None), ("isolated-not", "cuda")):
            why = guarded.annotation_refusal(name, ISOLATION, value, user=user)
            assert f"annotation {ISOLATION} says which GPUs the pod has, or who pays for them, or what limits it" in why


def test_unknown_isolation_is_refused(guarded: Guarded) -> None:
    """The list is where an administrator who allows fewer of them in the webhook does so here."""
    sent = prepared()
    sent["metadata"]["annotations"][ISOLATION] = "cud"
    for namespace in (IN, OUT):
        assert 'is "cud", it must be one of none, hami-core, mps, mig, cuda' in guarded.refusal(
            sent, namespace=namespace
        )


@pytest.fixture
def isolated(guarded: Guarded) -> Iterator[None]:
    """Label the opted-in namespace with an isolation."""
    opted_in = {"gpu.scheduling/injection": "enabled"}
    namespaces.create(guarded.layout, IN, {**opted_in, ISOLATION: "cuda"})
    wait.until(lambda: guarded.refusal(prepared()), what="the label in force", timeout_s=PATIENCE_S)
    yield
    client(guarded.layout).patch("namespace", IN, {"metadata": {"labels": {ISOLATION: None}}})
    wait.until(lambda: not guarded.refusal(prepared()), what="the label gone", timeout_s=PATIENCE_S)


@pytest.mark.usefixtures("isolated")
def test_pod_without_the_isolation_of_its_namespace_is_refused(guarded: Guarded) -> None:
    """The webhook may learn of a new label some moments later; a choice of the pod itself counts."""
    assert f"label {ISOLATION}: cuda, which the admission webhook tranche-webhook did not write" in guarded.refusal(
        prepared()
    )
    assert guarded.refusal(prepared(isolation="cuda")) == ""
    assert guarded.refusal(prepared(isolation="none")) == ""
