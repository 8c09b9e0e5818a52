"""A real cluster for the tests that need one: started once, beside whatever lab the user has."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import settings

from lab import binaries, cluster
from lab import control_plane as control_plane_module
from lab import real_node as real_node_module
from lab.errors import LabError
from lab.layout import PORT_BLOCK, Layout

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping

# Away from the lab's default. The next block of ports is for tests that start and kill a lab of their own.
BASE_PORT = int(os.environ.get("LAB_TEST_BASE_PORT", "22000"))

# How long an example takes says how busy the machine is; a test that hangs is ended by pytest-timeout.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what awaits on the event loop that our processes run on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing before the first test: a build takes longer than any test may.

    What cannot be built fails in the tests that need it, not here.
    """
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    if marks & {"apiserver", "kubelet"} and not session.config.option.collectonly:
        report = session.config.get_terminal_writer().line
        with contextlib.suppress(LabError), tempfile.TemporaryDirectory() as folder:
            binaries.provide(Path(folder), report=report)


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """The names of the suite's lab. Whatever a test starts under them is taken down at the end."""
    layout = Layout(root=tmp_path_factory.mktemp("lab"), base_port=BASE_PORT)
    yield layout
    cluster.down(layout)


@pytest.fixture
def own_layout(tmp_path: Path) -> Iterator[Layout]:
    """A lab for one test, beside the suite's."""
    layout = Layout(root=tmp_path, base_port=BASE_PORT + PORT_BLOCK)
    yield layout
    cluster.down(layout)


@pytest.fixture(scope="session")
def control_plane(layout: Layout) -> Layout:
    """The suite's lab with its control plane up: `kubectl.run(control_plane, …)`, `control_plane.kubeconfig`."""
    control_plane_module.up(layout)
    return layout


@pytest.fixture(scope="session")
def node_support() -> None:
    """Skip where this machine cannot run a real node; in CI, where it must, fail."""
    if lacks := real_node_module.unsupported():
        reason = f"no real node: {'; '.join(lacks)}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def real_node(node_support: None, control_plane: Layout) -> Layout:
    """The suite's lab with its real node Ready."""
    real_node_module.up(control_plane)
    return control_plane
