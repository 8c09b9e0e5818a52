"""A mode in which GPUBindings count, and no definition of them: the scheduler decides nothing, and says why."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from lab import components, wait
from lab.client import client
from lab.processes import Daemon
from tests.support.patience import PATIENCE_S
from tests.system.support import gpubindings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.layout import Layout

pytestmark = pytest.mark.apiserver


def readiness(layout: Layout) -> tuple[int, str]:
    """Return the status and the text of the scheduler's `/readyz`; 0 while it does not listen."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(components.component(layout, "scheduler").ready, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


@pytest.fixture
def undefined(tranche: Layout) -> Iterator[Layout]:
    """The lab with a scheduler that may read GPUBindings, of which the API server knows nothing."""
    _, *roles = gpubindings.component()
    scheduler = components.component(tranche, "scheduler")
    client(tranche).apply(*roles)
    Daemon(tranche, "scheduler").stop()
    components.start_replica(tranche, scheduler, "--allocation-bindings-mode=required", name="scheduler")
    yield tranche
    Daemon(tranche, "scheduler").stop()
    components.start(tranche, scheduler)
    wait.until(lambda: components.is_ready(scheduler), what="the scheduler ready", timeout_s=PATIENCE_S)
    gpubindings.delete(tranche, *gpubindings.component())


def test_without_the_definition_the_scheduler_is_unready_and_says_so(undefined: Layout) -> None:
    """No pod gets a card that may be another application's. When the definition comes, nothing has to be restarted."""
    missing = "the API server does not serve gpubindings of gpu.bytetrade.io/v1alpha1: apply their CustomResourceDef"
    status, text = wait.until(
        lambda: answer if missing in (answer := readiness(undefined))[1] else None,
        what="the scheduler names the missing definition",
        timeout_s=PATIENCE_S,
    )
    assert status == 503
    assert text.startswith("the scheduler has not read the cluster yet: ")
    definition, *_ = gpubindings.component()
    client(undefined).apply(definition)
    wait.until(lambda: readiness(undefined) == (200, "ok"), what="a ready scheduler", timeout_s=PATIENCE_S)
