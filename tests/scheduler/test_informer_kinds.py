"""A mode watches the kinds that it needs, and no others."""

from typing import cast

from cluster.api import Api
from scheduler.informers import informers

STORAGE = {
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses",
    "volumeattachments",
}


def kinds(*, has_storage: bool) -> list[str]:
    """Return the plural names of the kinds that are watched, in order."""
    return [
        each.plural
        for each in informers(cast("Api", None), relist_seconds=1.0, has_storage=has_storage, has_bindings=False)
    ]


def test_only_the_loop_watches_storage() -> None:
    """In extender mode kube-scheduler evaluates volumes, so the scheduler neither reads them nor needs the right to."""
    assert set(kinds(has_storage=True)) - set(kinds(has_storage=False)) == STORAGE
    assert not STORAGE & set(kinds(has_storage=False))
    assert kinds(has_storage=True)[-1] == kinds(has_storage=False)[-1] == "pods"
