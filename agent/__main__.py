"""`python -m agent`: serve this node, or every node of a fleet file."""

import asyncio
import os
import socket
from collections.abc import Sequence
from functools import partial

from agent import sources
from agent.inventory import InventoryError
from agent.metrics import Metrics
from agent.routes import serving
from agent.service import Agent
from agent.settings import AgentSettings
from agent.threadsafe_event import ThreadsafeEvent
from cluster import process
from cluster.api import Api
from cluster.api_metrics import TrafficMetrics
from cluster.configuration import Configuration, load
from cluster.connect import connect
from cluster.errors import ClusterError
from cluster.http import exposition


def main(argv: Sequence[str] | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT; if it cannot start, print the reason and exit with code 1."""
    configuration = load(
        argv,
        section="agent",
        settings=AgentSettings,
        prog="tranche-agent",
        description="Reports the GPUs of a node, or of every node of a fleet file, to the API server.",
    )
    process.run(partial(_run, configuration), log=configuration.log, failures=(ClusterError, InventoryError, OSError))


async def _run(configuration: Configuration[AgentSettings], stop: asyncio.Event) -> None:
    settings, cluster = configuration.own, configuration.cluster
    node = settings.node_name or os.environ.get("NODE_NAME", "")
    wakeup = ThreadsafeEvent()
    with sources.opened(settings, node=node, environment=os.environ, wake=wakeup.set) as source:
        await asyncio.to_thread(source.read)  # fail on an invalid inventory before serving anything
        async with connect(
            program="tranche-agent", kubeconfig=cluster.kubeconfig, context=cluster.context
        ) as connection:
            metrics = Metrics()
            exposition.register_process(metrics.registry)
            agent = Agent(
                Api(connection, traffic=TrafficMetrics(metrics.registry)),
                source=source,
                node=node,
                settings=settings,
                identity=settings.identity or os.environ.get("POD_NAME") or socket.gethostname(),
                metrics=metrics,
                wakeup=wakeup,
            )
            async with serving(agent, metrics, address=settings.metrics_address, port=settings.metrics_port):
                await process.until(stop, agent.run())


if __name__ == "__main__":
    main()
