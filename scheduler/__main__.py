"""`python -m scheduler`: the scheduler loop, or, with `--extender`, the extender of a stock kube-scheduler."""

import asyncio
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Sequence

from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cluster.api import Api
from cluster.configuration import Configuration, load
from cluster.connection import connect
from cluster.election import Election, Term
from cluster.errors import ClusterError
from cluster.events import Recorder
from scheduler import composition, leadership
from scheduler.beside import Beside
from scheduler.leader import Leader
from scheduler.leadership import Fence
from scheduler.metrics import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.term import TermWork


def main(argv: Sequence[str] | None = None) -> None:
    """Run until told to end."""
    configuration = load(
        argv,
        section="scheduler",
        settings=SchedulerSettings,
        others=composition.SECTIONS,
        prog="tranche-scheduler",
        description="Places pods that ask for GPUs: one decision, one Binding.",
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(_run(configuration))
    except (ClusterError, OSError) as error:
        sys.exit(f"error: {error}")


async def _run(configuration: Configuration[SchedulerSettings]) -> None:
    settings = configuration.own
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    async with connect(
        kubeconfig=configuration.cluster.kubeconfig, context=configuration.cluster.context
    ) as connection:
        api = Api(connection)
        beside = (
            Beside(api, settings.kube_scheduler) if settings.extender and settings.kube_scheduler.lease_name else None
        )
        metrics = Metrics(ledger=lambda: leader.ledger)
        recorder = Recorder(api, component=SCHEDULER_NAME, instance=identity)
        election = Election(
            api,
            namespace=SYSTEM_NAMESPACE,
            name=leadership.NAME,
            identity=identity,
            settings=settings.election,
            may_lead=beside.leads if beside is not None else lambda: True,
        )

        def work(term: Term) -> TermWork:
            return TermWork(
                api=api,
                token=term.token,
                settings=settings,
                allocation=configuration.allocation,
                recorder=recorder,
                metrics=metrics,
                is_trusted=lambda: election.is_trusted,
            )

        leader = Leader(election=election, fence=Fence(api), settings=settings, work=work)
        chores = [asyncio.create_task(recorder.run())]
        if beside is not None:
            chores.append(asyncio.create_task(beside.run()))
        try:
            async with composition.serving(configuration, api=api, leader=leader, metrics=metrics):
                await leader.run(_ended())
                await recorder.drain(settings.drain_seconds)
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)


def _ended() -> "asyncio.Future[None]":
    """Answer a future that is done when the process is told to end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    return ended


if __name__ == "__main__":
    main()
