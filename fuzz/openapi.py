"""Fuzz the HTTP API with schemathesis, from its own OpenAPI document: `python -m fuzz.openapi SECONDS`.

The scheduler's own listener serves a small cluster. Every response must match the document, and no error may be logged.
"""

import asyncio
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

from cluster.api import Api
from cluster.configuration import ClusterSettings, Configuration
from cluster.events import Recorder
from cluster.informer import Informer
from cluster.resource import PODS
from fuzz import world
from scheduler import servers
from scheduler.api.evictions import Evictions
from scheduler.api.openapi import OPENAPI
from scheduler.api.queries import Queries
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.objects import Pod
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.settings import SchedulerSettings

_CHECKS: Final = (
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
)
_SLOWEST_RESPONSE_SECONDS: Final = 20
_PROGRAM: Final = Path(sys.executable).with_name("schemathesis")


class _ErrorCounter(logging.Handler):
    """Counts log records of level error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count the record and print it."""
        self.count += 1
        sys.stderr.write(logging.Formatter().format(record) + "\n")


async def fuzz(seconds: int) -> bool:
    """Send requests for `seconds`; return whether every response matched the document and no error was logged."""
    errors = _ErrorCounter()
    logging.getLogger().addHandler(errors)
    api, state = Api.__new__(Api), world.state()
    pods = Informer(api, PODS, Pod, on_upsert=state.set_pod, on_delete=state.drop_pod)
    pods.add_if_new(world.pod())
    chooser = world.chooser(state, DisruptionBudgets())
    deciding = SimpleNamespace(queries=Queries(SchedulingCycle(state), Evictions(chooser), pods), extender=None)
    leader = cast("Leader", SimpleNamespace(is_ready=True, deciding=deciding))
    configuration = Configuration(
        ClusterSettings(), world.ALLOCATION, SchedulerSettings(port=0), {"webhook": world.WEBHOOK}
    )
    metrics, recorder = Metrics(), Recorder(api, component="fuzz", instance="fuzz")
    metrics.show_cards(lambda: state.ledger)
    try:
        async with servers.serving(
            configuration,
            api=api,
            leader=leader,
            metrics=metrics,
            recorder=recorder,
        ) as port:
            schemathesis = await asyncio.create_subprocess_exec(
                *(_PROGRAM, "run", f"http://127.0.0.1:{port}{OPENAPI}", f"--max-time={seconds}"),
                *(f"--checks={','.join(_CHECKS)}", f"--max-response-time={_SLOWEST_RESPONSE_SECONDS}"),
                # Another listener serves these.
                "--exclude-path-regex=^/(api/namespaces/|api/assign-|api/usage$|version$)",
                *("--continue-on-failure", "--generation-database=none", "--no-color"),
            )
            code = await schemathesis.wait()
    finally:
        logging.getLogger().removeHandler(errors)
    return code == 0 and not errors.count


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(fuzz(int(sys.argv[1]))) else 1)
