"""`python -m agent`: serve this node, or every node of a fleet file."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path

from agent import sources
from agent.delivery import DeliveryPlugin
from agent.dra.claim_files import ClaimFiles
from agent.dra.node_allocators import NodeAllocators
from agent.dra.node_view import NodeView
from agent.inventory import InventoryError
from agent.measurement_metrics import MeasurementCollector
from agent.measuring import Measurer
from agent.metrics import Metrics
from agent.nri import pod_watch
from agent.nri.enforcement import Enforcement
from agent.nri.memory_limits import MemoryLimits
from agent.nri.plugin import Plugin
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
            api = Api(connection, traffic=TrafficMetrics(metrics.registry))
            exposition.register_process(metrics.registry)
            limits = MemoryLimits() if settings.memory_limits == "agent" else None
            allocators = NodeAllocators(
                api,
                setting=settings.allocator,
                on_change=wakeup.set,
                settle_seconds=settings.dra_settle_seconds,
            )
            agent = Agent(
                api,
                source=source,
                node=node,
                settings=settings,
                identity=settings.identity or os.environ.get("POD_NAME") or socket.gethostname(),
                metrics=metrics,
                wakeup=wakeup,
                allocators=allocators,
                plugin=_plugin(configuration, api, node, metrics=metrics, wakeup=wakeup, limits=limits),
            )
            measurer = Measurer(source, node=node, settings=settings)
            metrics.registry.register(MeasurementCollector(lambda: measurer.last))
            async with serving(agent, metrics, measurer, address=settings.metrics_address, port=settings.metrics_port):
                measuring = asyncio.create_task(measurer.run(), name="measurements")
                try:
                    await process.until(
                        stop, agent.run(), *_limiting(limits, api, node), *_claims(settings, api, node, allocators)
                    )
                finally:
                    measuring.cancel()


def _limiting(limits: MemoryLimits | None, api: Api, node: str) -> Iterator[Coroutine[None, None, None]]:
    """Yield what keeps the driver's limits equal to the allocations of the pods on this node."""
    if limits is not None:
        yield limits.run()
        yield pod_watch.of_node(api, node, limits.allocate).run()


def _claims(
    settings: AgentSettings, api: Api, node: str, allocators: NodeAllocators
) -> Iterator[Coroutine[None, None, None]]:
    """Yield what prepares claims for the kubelet of this node, if any; the nodes of a fleet file have no kubelet."""
    if settings.allocator == "ledger" or not node:
        return
    from agent.dra.calls import Calls  # noqa: PLC0415 -- gRPC takes 20 MB, and few nodes need it
    from agent.dra.plugin import DraPlugin  # noqa: PLC0415 -- the same

    files = ClaimFiles(Path(settings.cdi_folder))
    calls = Calls(node, NodeView(api, node), allocator=allocators.of(node), files=files)
    yield DraPlugin(
        calls, folder=Path(settings.dra_plugin_folder), registrations=Path(settings.dra_registration_folder)
    ).run()


def _plugin(
    configuration: Configuration[AgentSettings],
    api: Api,
    node: str,
    *,
    metrics: Metrics,
    wakeup: ThreadsafeEvent,
    limits: MemoryLimits | None,
) -> DeliveryPlugin | None:
    """Return the plugin by which the agent delivers cards itself, if it is to.

    Raises:
        InventoryError: it is to serve a kubelet, and no node is named.
    """
    settings = configuration.own
    if settings.delivery == "nri":
        return Plugin(
            Path(settings.nri_socket),
            enforcement=Enforcement(settings, core_policy=configuration.allocation.core_policy),
            limits=limits,
            on_change=wakeup.set,
            on_undelivered=metrics.undelivered,
        )
    if settings.delivery != "device-plugin":
        return None
    if not node:
        raise InventoryError("agent.delivery is device-plugin, and a kubelet serves one node: set agent.node_name")
    from agent.device_plugin.node_view import LiveNodeView  # noqa: PLC0415 -- gRPC takes 20 MB, and few nodes need it
    from agent.device_plugin.plugin import DevicePlugin  # noqa: PLC0415 -- the same

    resource = settings.device_plugin_resource
    return DevicePlugin(
        Path(settings.device_plugin_folder),
        LiveNodeView(api, node=node, resource=resource, socket=settings.pod_resources_socket),
        resource=resource,
        on_change=wakeup.set,
        on_refused=metrics.refused_devices,
    )


if __name__ == "__main__":
    main()
