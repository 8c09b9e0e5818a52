"""`python -m scheduler`: the scheduler loop, or, with `--extender`, the extender of a stock kube-scheduler."""

import asyncio
import socket
import uuid
from collections.abc import Sequence
from functools import partial

from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cluster import process, process_metrics
from cluster.api import Api
from cluster.configuration import Configuration, load
from cluster.connection import connect
from cluster.election import Election, Term
from cluster.errors import ClusterError
from cluster.events import Recorder
from cluster.traffic_metrics import TrafficMetrics
from scheduler import composition, leadership
from scheduler.beside import Beside
from scheduler.leader import Leader
from scheduler.leadership import Fence
from scheduler.metrics import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.term import TermWork
from scheduler.term_metrics import Standing


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
    process.run(partial(_run, configuration), log=configuration.log, failures=(ClusterError, OSError))


async def _run(configuration: Configuration[SchedulerSettings], stop: asyncio.Event) -> None:
    settings = configuration.own
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    async with connect(
        kubeconfig=configuration.cluster.kubeconfig, context=configuration.cluster.context
    ) as connection:
        metrics = Metrics(ledger=lambda: leader.ledger)
        process_metrics.register(metrics.registry)
        api = Api(connection, traffic=TrafficMetrics(metrics.registry))
        beside = (
            Beside(api, settings.kube_scheduler) if settings.extender and settings.kube_scheduler.lease_name else None
        )
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

        metrics.registry.register(Standing(term=lambda: leader.deciding, recorder=recorder))
        leader = Leader(election=election, fence=Fence(api), settings=settings, work=work)
        chores = [asyncio.create_task(recorder.run())]
        if beside is not None:
            chores.append(asyncio.create_task(beside.run()))
        try:
            async with composition.serving(configuration, api=api, leader=leader, metrics=metrics):
                await leader.run(asyncio.create_task(_end(stop)))
                await recorder.drain(settings.drain_seconds)
        finally:
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)


async def _end(stop: asyncio.Event) -> None:
    await stop.wait()


if __name__ == "__main__":
    main()
