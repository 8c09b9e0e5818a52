"""Clusters of Kubernetes 1.37, whose stock kube-scheduler allocates devices by DRA.

One is in extender mode, beside another DRA driver. In the other one nodes of Tranche go to DRA themselves.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from lab import binaries
from lab import control_plane as control_plane_module
from tests.support import labs
from tests.system.conftest import Namespace
from tests.system.support import dra_driver as driver
from tests.system.support import dra_nodes, pairs
from tests.system.support.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

NODE = "gpu-0"
NODES = ("gpu-0", "gpu-1")
ALONE = "gpu-2"
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


@pytest.fixture(scope="module")
def changing_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A cluster whose nodes can go to DRA, with kube-scheduler and the loop side by side."""
    with labs.reserved("own_layout", tmp_path_factory) as layout:
        control_plane_module.up(layout, provide=binaries.provide_for_dra)
        dra_nodes.up(layout, *NODES, alone=ALONE)
        yield layout


@pytest.fixture
def claimant(changing_nodes: Layout) -> Iterator[Namespace]:
    """A namespace that Tranche serves; its pods and claims are deleted after the test."""
    made = driver.namespace(changing_nodes, f"test-{next(_SERIAL)}")
    yield made
    dra_nodes.remove(made)
