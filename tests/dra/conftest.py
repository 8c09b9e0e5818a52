"""A cluster of Kubernetes 1.37 in extender mode: a stock kube-scheduler that satisfies extended resources by DRA."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lab import binaries
from lab import control_plane as control_plane_module
from tests.support import labs
from tests.system.conftest import Namespace
from tests.system.support import dra_driver as driver
from tests.system.support import pairs
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

NODE = "gpu-0"
_SERIAL = itertools.count()


@pytest.fixture(scope="module")
def dra_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A cluster with one node of Tranche and one pair of kube-scheduler and extender."""
    with labs.reserved("own_layout", tmp_path_factory) as layout:
        control_plane_module.up(layout, kube_scheduler=False, provide=binaries.provide_for_dra)
        pairs.up(layout, [NODE], provide=binaries.provide_for_dra)
        Pair(layout, 0).start()
        yield layout


@pytest.fixture
def tenant(dra_cluster: Layout) -> Iterator[Namespace]:
    """A namespace that Tranche serves; it is empty again after the test, and the driver's objects are gone."""
    made = driver.namespace(dra_cluster, f"test-{next(_SERIAL)}")
    yield made
    driver.remove(dra_cluster)
    made.empty()
