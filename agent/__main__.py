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
from agent.wakeup import Wakeup
from cluster import process, process_metrics
from cluster.api import Api
from cluster.configuration import Configuration, load
from cluster.connection import connect
from cluster.errors import ClusterError
from cluster.traffic_metrics import TrafficMetrics


def main(argv: Sequence[str] | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT; exit code 1 says that it could not start, and why."""
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
    wakeup = Wakeup()
    with sources.opened(settings, node=node, environment=os.environ, wake=wakeup.ring) as source:
        await asyncio.to_thread(source.read)  # a mistake in the inventory is told before anything is served
        async with connect(kubeconfig=cluster.kubeconfig, context=cluster.context) as connection:
            metrics = Metrics()
            process_metrics.register(metrics.registry)
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
