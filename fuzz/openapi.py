"""The HTTP API as its own document describes it, under schemathesis: `python -m fuzz.openapi SECONDS`.

The listener is the scheduler's, with all that it serves, over a small cluster. Every answer has to be one that the
document has, and none may be an accident.
"""

import asyncio
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

from cluster.api import Api
from cluster.configuration import ClusterSettings, Configuration
from cluster.reflector import Reflector
from cluster.resource import PODS
from fuzz import world
from scheduler import composition
from scheduler.inquiry import Inquiry
from scheduler.leader import Leader
from scheduler.metrics import Metrics
from scheduler.objects import Pod
from scheduler.openapi import OPENAPI
from scheduler.settings import SchedulerSettings

_CHECKS: Final = (
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
)
_SLOWEST_ANSWER_SECONDS: Final = 20
_PROGRAM: Final = Path(sys.executable).with_name("schemathesis")


class _Accidents(logging.Handler):
    """Counts what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count, and tell."""
        self.count += 1
        sys.stderr.write(logging.Formatter().format(record) + "\n")


async def fuzz(seconds: int) -> bool:
    """Ask for so long; answer whether every answer was one of the document's."""
    accidents = _Accidents()
    logging.getLogger().addHandler(accidents)
    api, state = Api.__new__(Api), world.state()
    pods = Reflector(api, PODS, Pod, on_set=state.set_pod, on_delete=state.drop_pod)
    pods.learn(world.pod())
    deciding = SimpleNamespace(inquiry=Inquiry(state, pods), extender=None)
    leader = cast("Leader", SimpleNamespace(is_ready=True, deciding=deciding))
    configuration = Configuration(
        ClusterSettings(), world.ALLOCATION, SchedulerSettings(port=0), {"webhook": world.WEBHOOK}
    )
    metrics = Metrics(ledger=lambda: state.ledger)
    try:
        async with composition.serving(configuration, api=api, leader=leader, metrics=metrics) as port:
            asking = await asyncio.create_subprocess_exec(
                *(_PROGRAM, "run", f"http://127.0.0.1:{port}{OPENAPI}", f"--max-time={seconds}"),
                *(f"--checks={','.join(_CHECKS)}", f"--max-response-time={_SLOWEST_ANSWER_SECONDS}"),
                *("--continue-on-failure", "--generation-database=none", "--no-color"),
            )
            code = await asking.wait()
    finally:
        logging.getLogger().removeHandler(accidents)
    return code == 0 and not accidents.count


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(fuzz(int(sys.argv[1]))) else 1)
