"""`python -m scheduler`: the scheduler loop, or, with `--extender`, the extender of a stock kube-scheduler."""

import asyncio
import socket
import uuid
from collections.abc import Sequence
from functools import partial

from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cluster import process
from cluster.api import Api
from cluster.api_metrics import TrafficMetrics
from cluster.configuration import Configuration, load
from cluster.connect import connect
from cluster.election import Election, Term
from cluster.errors import ClusterError
from cluster.event_loop import PauseMonitor
from cluster.events import Recorder
from cluster.http import exposition
from scheduler import fence, servers
from scheduler.fence import Fence
from scheduler.kube_scheduler_lease import KubeSchedulerLease
from scheduler.leader import Leader
from scheduler.metrics.instruments import Metrics
from scheduler.settings import SchedulerSettings
from scheduler.state.collector import StateCollector
from scheduler.term import LeaderTerm
from scheduler.term_builder import build_term


def main(argv: Sequence[str] | None = None) -> None:
    """Run until a signal ends the process."""
    configuration = load(
        argv,
        section="scheduler",
        settings=SchedulerSettings,
        others=servers.SECTIONS,
        prog="tranche-scheduler",
        description="Schedules pods that ask for GPUs: chooses node and cards, and writes both with one Binding.",
    )
    process.run(partial(_run, configuration), log=configuration.log, failures=(ClusterError, OSError))


async def _run(configuration: Configuration[SchedulerSettings], stop: asyncio.Event) -> None:
    settings = configuration.own
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    cluster = configuration.cluster
    async with connect(
        program="tranche-scheduler", kubeconfig=cluster.kubeconfig, context=cluster.context
    ) as connection:
        metrics = Metrics()
        exposition.register_process(metrics.registry)
        api = Api(connection, traffic=TrafficMetrics(metrics.registry))
        kube_scheduler = (
            KubeSchedulerLease(api, settings.kube_scheduler)
            if settings.extender and settings.kube_scheduler.lease_name
            else None
        )
        recorder = Recorder(api, component=SCHEDULER_NAME, instance=identity)
        election = Election(
            api,
            namespace=SYSTEM_NAMESPACE,
            name=fence.NAME,
            identity=identity,
            settings=settings.election,
            may_lead=kube_scheduler.leads if kube_scheduler is not None else lambda: True,
        )

        def build(term: Term) -> LeaderTerm:
            return build_term(
                api=api,
                token=term.token,
                settings=settings,
                allocation=configuration.allocation,
                recorder=recorder,
                metrics=metrics,
                is_trusted=lambda: election.is_trusted,
            )

        leader = Leader(election=election, fence=Fence(api), settings=settings, build_term=build)
        metrics.show_cards(lambda: leader.ledger)
        metrics.registry.register(StateCollector(term=lambda: leader.deciding, recorder=recorder))
        pauses = PauseMonitor()
        metrics.registry.register(pauses)
        background = [asyncio.create_task(recorder.run()), asyncio.create_task(pauses.run())]
        if kube_scheduler is not None:
            background.append(asyncio.create_task(kube_scheduler.run()))
        try:
            async with servers.serving(configuration, api=api, leader=leader, metrics=metrics):
                await leader.run(asyncio.create_task(_end(stop)))
                await recorder.drain(settings.drain_seconds)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)


async def _end(stop: asyncio.Event) -> None:
    await stop.wait()


if __name__ == "__main__":
    main()
