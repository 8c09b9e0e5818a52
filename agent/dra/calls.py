"""The answers to the kubelet's calls (service k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin), and to its registration."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import grpc

from agent.dra import cdi
from agent.dra.claim_files import ClaimFiles
from agent.dra.messages_pb2 import (
    Claim,
    Device,
    InfoRequest,
    NodePrepareResourceResponse,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from agent.dra.node_allocator import NodeAllocator
from agent.dra.node_view import NodeView
from agent.refusal import Refusal
from allocation.names import DRA_DRIVER
from cluster.errors import ClusterError

log = logging.getLogger(__name__)

SERVICE: Final = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
REGISTRATION: Final = "pluginregistration.Registration"
VERSIONS: Final = ("v1.DRAPlugin",)
_PATIENCE_SECONDS: Final = 10.0
"""How long an answer about one claim may take; the kubelet itself waits for longer."""


class Calls:
    """The methods of the service for one node. Each claim is answered by itself, as often as the kubelet asks."""

    def __init__(self, node: str, view: NodeView, *, allocator: NodeAllocator, files: ClaimFiles) -> None:
        """Serve a node; `view` says what claims have, and `allocator` whether they may have it."""
        self._node = node
        self._view = view
        self._allocator = allocator
        self._files = files

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the methods of the service."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                    self._prepare_all,
                    request_deserializer=NodePrepareResourcesRequest.FromString,
                    response_serializer=NodePrepareResourcesResponse.SerializeToString,
                ),
                "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                    self._unprepare_all,
                    request_deserializer=NodeUnprepareResourcesRequest.FromString,
                    response_serializer=NodeUnprepareResourcesResponse.SerializeToString,
                ),
            },
        )

    async def reconcile(self) -> None:
        """Remove the files of claims that have no card of this node any more.

        Raises:
            ClusterError: the API server does not answer, or refuses.
            OSError: the folder cannot be read or written.
        """
        written = self._files.uids()
        if written:
            allocated = {each.metadata.uid for each in await self._view.claims()}
            for uid in written - allocated:
                self._files.remove(uid)
                log.info("claim %s has no card any more: its CDI file is removed", uid)

    async def _prepare_all(
        self, request: NodePrepareResourcesRequest, _context: grpc.aio.ServicerContext
    ) -> NodePrepareResourcesResponse:
        return NodePrepareResourcesResponse(claims={each.uid: await self._answer(each) for each in request.claims})

    async def _answer(self, claim: Claim) -> NodePrepareResourceResponse:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return NodePrepareResourceResponse(devices=await self._prepare(claim))
        except Refusal as refusal:
            why = str(refusal)
        except (ClusterError, OSError) as error:  # a TimeoutError is an OSError
            why = f"not prepared, the kubelet tries again: {str(error) or type(error).__name__}"
        log.warning("claim %s/%s refused: %s", claim.namespace, claim.name, why)
        return NodePrepareResourceResponse(error=why)

    async def _prepare(self, claim: Claim) -> list[Device]:
        """Write the file of a claim, and return its devices.

        Raises:
            Refusal: the claim is not to have cards of this node now.
            ClusterError: the API server does not answer, or refuses.
            OSError: the file cannot be written.
        """
        if pod := await self._view.allocated_pod():
            raise Refusal(f"pod {pod} has cards of node {self._node} by Tranche's ledger: it has to end first")
        found = await self._view.claim(claim.namespace, claim.name)
        if found.metadata.uid != claim.uid:
            raise Refusal("the claim has been deleted; another one has its name")
        results = found.results(self._node)
        if not results:
            raise Refusal(f"no card of node {self._node} is allocated to the claim")
        specification, prepared = cdi.prepare(claim.uid, results, self._allocator.cards)
        # After all that was awaited: meanwhile the node may have begun to leave.
        self._check_serves()
        self._files.write(claim.uid, specification)
        return [
            Device(
                request_names=[each.request],
                pool_name=self._node,
                device_name=each.device,
                cdi_device_ids=each.cdi_names,
                share_id=each.share_id,
            )
            for each in prepared
        ]

    def _check_serves(self) -> None:
        if not self._allocator.serves:
            raise Refusal(
                f"node {self._node} does not give its cards to claims now: its allocator is {self._allocator.allocator}"
                " (docs/dra.md)"
            )

    async def _unprepare_all(
        self, request: NodeUnprepareResourcesRequest, _context: grpc.aio.ServicerContext
    ) -> NodeUnprepareResourcesResponse:
        return NodeUnprepareResourcesResponse(claims={each.uid: self._unprepare(each) for each in request.claims})

    def _unprepare(self, claim: Claim) -> NodeUnprepareResourceResponse:
        """Remove the file of a claim, whoever gives out the cards now: its pod has ended."""
        try:
            self._files.remove(claim.uid)
        except (Refusal, OSError) as error:
            return NodeUnprepareResourceResponse(error=str(error))
        return NodeUnprepareResourceResponse()


def registration(endpoint: str, on_status: Callable[[str], None]) -> grpc.GenericRpcHandler:
    """Return the methods by which the kubelet learns of the plugin that serves `endpoint`.

    `on_status` is called with each answer of the kubelet: empty if the plugin is registered, else the reason.
    """

    async def info(_request: InfoRequest, _context: grpc.aio.ServicerContext) -> PluginInfo:
        return PluginInfo(type="DRAPlugin", name=DRA_DRIVER, endpoint=endpoint, supported_versions=VERSIONS)

    async def notify(status: RegistrationStatus, _context: grpc.aio.ServicerContext) -> RegistrationStatusResponse:
        on_status("" if status.plugin_registered else status.error or "without a reason")
        return RegistrationStatusResponse()

    return grpc.method_handlers_generic_handler(
        REGISTRATION,
        {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                info,
                request_deserializer=InfoRequest.FromString,
                response_serializer=PluginInfo.SerializeToString,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                notify,
                request_deserializer=RegistrationStatus.FromString,
                response_serializer=RegistrationStatusResponse.SerializeToString,
            ),
        },
    )
