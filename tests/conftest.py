"""A real cluster for the tests that need one: started once, on ports of its own."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import settings

from lab import binaries, containerd, helm_binary, karpenter_binary, promtool_binary, scheduling
from lab import control_plane as control_plane_module
from lab import real_node as real_node_module
from lab.errors import LabError
from tests.support import clearing, distribution, labs, skips
from tests.support.depth import DEEP
from tests.support.distribution import Distribution
from tests.support.durations import Durations
from tests.support.skips import Skips

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping

    from xdist.remote import Producer

    from lab.layout import Layout

# The suite is bound by its processors: control planes and kubectls collect garbage less often, up to this memory.
os.environ.setdefault("GOGC", "400")
os.environ.setdefault("GOMEMLIMIT", "1GiB")

# What the modules of all tests make stays: a third of the time of collecting tests went into looking for garbage in it.
gc.disable()

CLUSTER_MARKS = frozenset({"apiserver", "kubelet", "helm", "image"})
PROGRAM_MARKS = CLUSTER_MARKS | {"promtool", "karpenter"}
TEARDOWN_S = 300

# The duration of an example depends on the load of the machine; pytest-timeout ends a test that hangs.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("deep", deadline=None, max_examples=100)
settings.load_profile("deep" if DEEP else "quick")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run asynchronous tests on the same event loop as the product's processes."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Measure the run, allow no other skips than those listed, and name it, so that its processes find each other."""
    config.pluginmanager.register(Durations())
    if os.environ.get("CI"):
        config.pluginmanager.register(Skips(skips.listed(skips.PAGE.read_text(encoding="utf-8"))))
    if hasattr(config.option, "testrunuid"):
        config.option.testrunuid = config.option.testrunuid or uuid.uuid4().hex


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Distribution:
    """Distribute tests by their labs."""
    return Distribution(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell the distribution which labs the tests use."""
    if getattr(config, "workerinput", {}).get("workerid") == "gw0":
        distribution.write(config.workerinput["testrunuid"], items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """End the labs that are needed no more, and a process whose test does not end.

    pytest-timeout counts no longer once the test has failed.
    """
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=sys.__stderr__)
    try:
        result = yield
        if isinstance(item, pytest.Function):
            labs.end_unneeded(item, nextitem)
        return result
    finally:
        faulthandler.cancel_dump_traceback_later()


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Build missing programs before the processes of `make test` start; not those of tests that `-m` leaves out."""
    if config.getoption("dist") != "no":
        marks = {mark for mark in PROGRAM_MARKS if f"not {mark}" not in config.option.markexpr}
        _build(marks, report=config.get_terminal_writer().line)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage again, but not in what stays, and build missing programs before the first test.

    A build takes longer than a test may.
    """
    gc.freeze()
    gc.enable()
    if not session.config.option.collectonly and not hasattr(session.config, "workerinput"):
        marks = {mark for item in session.items for mark in _marks(item)}
        _build(marks, report=session.config.get_terminal_writer().line)


def _build(marks: Collection[str], *, report: Callable[[str], None]) -> None:
    """Build what tests with these markers need; a failed build fails these tests, not this function."""
    if "promtool" in marks:
        with contextlib.suppress(LabError):
            promtool_binary.provide(report=report)
    if CLUSTER_MARKS.isdisjoint(marks):
        return
    with contextlib.suppress(LabError), tempfile.TemporaryDirectory() as folder:
        binaries.provide(Path(folder), report=report)
        scheduling.provide(report=report)
        if "dra" in marks:
            binaries.provide_for_dra(Path(folder), report=report)
        if "kubelet" in marks and not real_node_module.unsupported():
            containerd.provide(Path(folder), report=report)
    if "karpenter" in marks:
        with contextlib.suppress(LabError):
            karpenter_binary.provide(report=report)
    if "helm" in marks:
        with contextlib.suppress(LabError):
            for module in (helm_binary.HELM_3, helm_binary.HELM_4):
                helm_binary.provide(module, report=report)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """The suite's lab with a running control plane: `kubectl.run(control_plane, …)`, `control_plane.kubeconfig`."""
    with labs.reserved("control_plane", tmp_path_factory) as layout:
        # Nodes that tests create here have no kubelet: they would have a taint after a minute.
        control_plane_module.up(layout, node_startup_grace_period="1h")
        yield layout


@pytest.fixture(scope="session")
def emptied_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """The lab of `empty_cluster`."""
    with labs.reserved("empty_cluster", tmp_path_factory) as layout:
        yield layout


@pytest.fixture(scope="module")
def empty_cluster(emptied_lab: Layout) -> Iterator[Layout]:
    """A control plane without a scheduler, which a module has to itself, with nothing of the modules before it.

    The module may install anything on it, start processes, and kill them; it need not clean up.
    """
    with clearing.serving(emptied_lab):
        yield emptied_lab


@pytest.fixture
def own_layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    """A separate lab for one test, which starts it."""
    with labs.reserved("own_layout", tmp_path_factory) as layout:
        yield layout


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
