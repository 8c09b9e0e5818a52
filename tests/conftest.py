"""A real cluster for the tests that need one: started once, on ports of its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import settings

from lab import binaries, cluster, containerd, helm_binary, scheduling
from lab import control_plane as control_plane_module
from lab import real_node as real_node_module
from lab.errors import LabError
from lab.layout import PORT_BLOCK, Layout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping

# Not the lab's default ports. The next block of ports is for tests that start and kill a lab of their own.
BASE_PORT = int(os.environ.get("LAB_TEST_BASE_PORT", "22000"))

# The duration of an example depends on the load of the machine; pytest-timeout ends a test that hangs.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run asynchronous tests on the same event loop as the product's processes."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build missing binaries before the first test, because a build takes longer than a test may.

    A failed build fails the tests that need the binary, not this hook.
    """
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    if session.config.option.collectonly:
        return
    report = session.config.get_terminal_writer().line
    if marks & {"apiserver", "kubelet", "helm"}:
        with contextlib.suppress(LabError), tempfile.TemporaryDirectory() as folder:
            binaries.provide(Path(folder), report=report)
            scheduling.provide(report=report)
            if "kubelet" in marks and not real_node_module.unsupported():
                containerd.provide(Path(folder), report=report)
    if "helm" in marks:
        with contextlib.suppress(LabError):
            helm_binary.provide(report=report)


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """The layout of the suite's lab. Everything that a test starts in it is stopped at the end."""
    layout = Layout(root=tmp_path_factory.mktemp("lab"), base_port=BASE_PORT)
    yield layout
    cluster.down(layout)


@pytest.fixture
def own_layout(tmp_path: Path) -> Iterator[Layout]:
    """A separate lab for one test."""
    layout = Layout(root=tmp_path, base_port=BASE_PORT + PORT_BLOCK)
    yield layout
    cluster.down(layout)


@pytest.fixture(scope="session")
def control_plane(layout: Layout) -> Layout:
    """The suite's lab with a running control plane: `kubectl.run(control_plane, …)`, `control_plane.kubeconfig`."""
    control_plane_module.up(layout)
    return layout


@pytest.fixture(scope="session")
def node_support() -> None:
    """Skip the test if this machine cannot run a real node; in CI, fail."""
    if reasons := real_node_module.unsupported():
        reason = f"no real node: {'; '.join(reasons)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def real_node(node_support: None, control_plane: Layout) -> Layout:
    """The suite's lab with a Ready real node."""
    real_node_module.up(control_plane)
    return control_plane
