"""A mode watches the kinds that it needs, and no others."""

from typing import cast

from cluster.api import Api
from scheduler.informers import Informers
from scheduler.state import kinds as state_kinds

STORAGE = {
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "volumeattachments",
}


def kinds(
    *,
    has_storage: bool = False,
    preempts: bool = False,
    has_foreign_drivers: bool = False,
    has_pod_groups: bool = False,
) -> list[str]:
    """Return the plural names of the kinds that are watched, in order."""
    return [
        each.plural
        for each in Informers(
            cast("Api", None),
            state_kinds.needed(
                has_storage=has_storage,
                has_bindings=False,
                has_foreign_drivers=has_foreign_drivers,
                has_pod_groups=has_pod_groups,
                with_images=False,
            ),
            preempts=preempts,
            relist_seconds=1.0,
        )
    ]


def test_only_the_loop_watches_storage() -> None:
    """In extender mode kube-scheduler evaluates volumes, so the scheduler neither reads them nor needs the right to."""
    assert set(kinds(has_storage=True)) - set(kinds(has_storage=False)) == STORAGE
    assert not STORAGE & set(kinds(has_storage=False))
    assert kinds(has_storage=True)[-1] == kinds(has_storage=False)[-1] == "pods"


def test_budgets_are_watched_only_by_a_scheduler_that_preempts() -> None:
    """Another one needs no right to read them."""
    assert set(kinds(has_storage=False, preempts=True)) - set(kinds(has_storage=False)) == {"poddisruptionbudgets"}


def test_devices_are_watched_only_where_another_dra_driver_counts() -> None:
    """DeviceClasses are watched always, because they concern our own resources."""
    devices = {"resourceslices", "resourceclaims"}
    assert set(kinds(has_foreign_drivers=True)) - set(kinds()) == devices
    assert "deviceclasses" in kinds()


def test_pod_groups_are_watched_only_where_they_count() -> None:
    """Another scheduler needs no right to read them."""
    assert set(kinds(has_pod_groups=True)) - set(kinds()) == {"podgroups"}
