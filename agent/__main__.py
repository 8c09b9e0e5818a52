"""`python -m agent`: serve this node, or every node of a fleet file."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

from agent import sources
from agent.inventory import InventoryError
from agent.metrics import Metrics
from agent.routes import serving
from agent.service import Agent
from agent.settings import AgentSettings
from agent.wakeup import Wakeup
from cluster.api import Api
from cluster.configuration import ClusterSettings, load
from cluster.connection import connect
from cluster.errors import ClusterError

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT; answer the exit code."""
    configuration = load(
        argv,
        section="agent",
        settings=AgentSettings,
        prog="tranche-agent",
        description="Reports the GPUs of a node, or of every node of a fleet file, to the API server.",
    )
    logging.basicConfig(level=logging.INFO, format=_FORMAT, stream=sys.stderr)
    try:
        with suppress(asyncio.CancelledError):
            asyncio.run(_serve(configuration.own, configuration.cluster))
    except (ClusterError, InventoryError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(settings: AgentSettings, cluster: ClusterSettings) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
    node = settings.node_name or os.environ.get("NODE_NAME", "")
    wakeup = Wakeup()
    with sources.opened(settings, node=node, environment=os.environ, wake=wakeup.ring) as source:
        await asyncio.to_thread(source.read)  # a mistake in the inventory is told before anything is served
        async with connect(kubeconfig=cluster.kubeconfig, context=cluster.context) as connection:
            metrics = Metrics()
            agent = Agent(
                Api(connection),
                source=source,
                node=node,
                settings=settings,
                identity=settings.identity or os.environ.get("POD_NAME") or socket.gethostname(),
                metrics=metrics,
                wakeup=wakeup,
            )
            async with serving(agent, metrics, address=settings.metrics_address, port=settings.metrics_port):
                await agent.run()


if __name__ == "__main__":
    sys.exit(main())
