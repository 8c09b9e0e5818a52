"""What the fence goes by survives: the Leadership is restored, and its epoch never decreases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab import wait
from lab.client import client
from tests.support.patience import PATIENCE_S
from tests.system.conftest import Namespace, pod

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
TOKEN = "gpu.scheduling/leader"  # noqa: S105 -- an annotation
ALLOCATION = "gpu.scheduling/allocation"


def leadership(layout: Layout) -> tuple[int, str]:
    """Return epoch and identity of the leader."""
    spec = client(layout).get("leadership", "tranche-scheduler", namespace="tranche-system")["spec"]
    return spec["epoch"], spec["identity"]


def test_deleted_leadership_is_restored(tranche: Layout, namespace: Namespace) -> None:
    """Without it no Binding of the scheduler passes, so the leader restores it. Other schedulers are not affected."""
    client(tranche).delete("leadership", "tranche-scheduler", namespace="tranche-system")
    namespace.create(pod("gpu", gpu=1, gpumem=100), pod("ordinary"))
    namespace.placed(2)
    assert leadership(tranche)[0] >= 1


def test_deleted_lease_does_not_reset_the_epoch(tranche: Layout, namespace: Namespace) -> None:
    """The epoch of the next term is greater than every earlier one."""
    epoch, _ = leadership(tranche)
    client(tranche).delete("lease", "tranche-scheduler", namespace="tranche-system")
    wait.until(lambda: leadership(tranche)[0] > epoch, what="a new term", timeout_s=PATIENCE_S)
    namespace.create(pod("gpu", gpu=1, gpumem=100))
    namespace.placed(1)
