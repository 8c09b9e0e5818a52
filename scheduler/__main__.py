"""`python -m scheduler`: the scheduler loop, or, with `--extender`, the extender of a stock kube-scheduler."""

import asyncio
import socket
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from allocation.names import SCHEDULER_NAME, SYSTEM_NAMESPACE
from cluster import process
from cluster.api import Api
from cluster.api_metrics import TrafficMetrics
from cluster.configuration import Configuration, ConfigurationError, load
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
from scheduler.measurements.collector import UseCollector
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
    failures = (ClusterError, ConfigurationError, OSError)
    process.run(partial(_run, configuration), log=configuration.log, failures=failures)


async def _run(configuration: Configuration[SchedulerSettings], stop: asyncio.Event) -> None:
    _check(configuration)
    settings = configuration.own
    identity = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    cluster = configuration.cluster
    async with connect(
        program="tranche-scheduler", kubeconfig=cluster.kubeconfig, context=cluster.context
    ) as connection:
        metrics = Metrics()
        exposition.register_process(metrics.registry)
        api = Api(connection, traffic=TrafficMetrics(metrics.registry))
        hands_over = configuration.allocation.hands_over
        kube_scheduler = (
            KubeSchedulerLease(api, settings.kube_scheduler)
            if (settings.extender or hands_over) and settings.kube_scheduler.lease_name
            else None
        )
        recorder = Recorder(api, component=SCHEDULER_NAME, instance=identity)
        election = Election(
            api,
            namespace=SYSTEM_NAMESPACE,
            name=fence.NAME,
            identity=identity,
            settings=settings.election,
            may_lead=_may_lead(kube_scheduler, is_extender=settings.extender),
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
                kube_scheduler=kube_scheduler,
            )

        leader = Leader(election=election, fence=Fence(api), settings=settings, build_term=build)
        metrics.show_cards(lambda: leader.ledger)
        metrics.registry.register(StateCollector(term=lambda: leader.deciding, recorder=recorder))
        metrics.registry.register(UseCollector(lambda: leader.deciding.use if leader.deciding is not None else None))
        pauses = PauseMonitor()
        metrics.registry.register(pauses)
        background = [asyncio.create_task(recorder.run()), asyncio.create_task(pauses.run())]
        if kube_scheduler is not None:
            background.append(asyncio.create_task(kube_scheduler.run()))
        try:
            async with servers.serving(configuration, api=api, leader=leader, metrics=metrics, recorder=recorder):
                await leader.run(asyncio.create_task(_end(stop)))
                await recorder.drain(settings.drain_seconds)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)


def _check(configuration: Configuration[SchedulerSettings]) -> None:
    """Refuse to hand pods over where no kube-scheduler of theirs can be, or where anybody could call `/bind`.

    Raises:
        ConfigurationError: sections contradict each other.
    """
    if not configuration.allocation.hands_over:
        return
    key = "allocation.resource_claims is hand-over"
    if configuration.own.extender:
        raise ConfigurationError(f"{key}: in extender mode kube-scheduler has all pods; set it to hold")
    if configuration.own.exposure:
        raise ConfigurationError(f"{key}, so kube-scheduler calls, and {configuration.own.exposure}")


def _may_lead(kube_scheduler: KubeSchedulerLease | None, *, is_extender: bool) -> Callable[[], bool]:
    """Return whether this replica may lead, by where the kube-scheduler runs that leads."""
    if kube_scheduler is None:
        return lambda: True
    return kube_scheduler.leads if is_extender else kube_scheduler.lets_loop_lead


async def _end(stop: asyncio.Event) -> None:
    await stop.wait()


if __name__ == "__main__":
    main()
