"""Reports pods whose cards their nodes do not have any more, or deletes them, so that their controllers create others.

The local copies only suggest: the report of the node is read from the API server first. Nothing is concluded from a
node whose agent is silent or lists no card at all, nor before the delay after the beginning of a term has passed.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from allocation import names
from cluster.errors import ClusterError, ConflictError, NotFoundError
from cluster.events import Recorder
from cluster.gpu_node_status import GpuNodeStatus
from cluster.informer import SURVIVED, Informer
from cluster.resource import GPU_NODE_STATUSES, PODS
from scheduler.fenced_api import FencedApi
from scheduler.missing_devices import orphans
from scheduler.missing_devices.orphans import Orphan
from scheduler.objects import Pod
from scheduler.settings import SchedulerSettings
from scheduler.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_DEADLINE_SECONDS = 30.0


class MissingDeviceReconciler:
    """Looks for such pods regularly."""

    def __init__(
        self,
        fenced: FencedApi,
        *,
        state: ClusterState,
        statuses: Informer[GpuNodeStatus],
        pods: Informer[Pod],
        recorder: Recorder,
        settings: SchedulerSettings,
    ) -> None:
        """Compare what pods hold in `state` with `statuses`."""
        self._fenced = fenced
        self._state = state
        self._statuses = statuses
        self._pods = pods
        self._recorder = recorder
        self._settings = settings
        self._known: dict[str, tuple[Orphan, str, str]] = {}
        """The pods with missing cards by UID, as the last event said, with the name and the namespace of each."""

    async def run(self) -> None:
        """Look until cancelled, or until this replica is not trusted any more. The informers must be complete."""
        await asyncio.sleep(self._settings.missing_devices_delay_seconds)
        while self._fenced.is_trusted:
            try:
                async with asyncio.timeout(_DEADLINE_SECONDS):
                    await self.reconcile()
            except TimeoutError:
                log.warning("pods with missing devices: not finished within %g s, trying again", _DEADLINE_SECONDS)
            await asyncio.sleep(self._settings.missing_devices_period_seconds)

    async def reconcile(self) -> None:
        """Look once."""
        held = orphans.held_cards(self._state.ledger.reservations())
        await asyncio.sleep(0)
        present = {node: self._present(node) for node in held}
        suspects = orphans.find(held, present)
        self._restore(suspects, present)
        if suspects:
            await self._act(await self._confirmed(suspects))

    def _present(self, node: str) -> frozenset[str] | None:
        """Return the cards that a node has, or None if its agent is silent or lists none."""
        if self._state.agent_leases.has_expired(node):
            return None
        return orphans.present_cards(self._statuses.get(node))

    async def _confirmed(self, suspects: Iterable[Orphan]) -> list[Orphan]:
        """Return the suspects that remain by the reports which the API server has now."""
        by_node: dict[str, list[Orphan]] = {}
        for each in suspects:
            by_node.setdefault(each.node, []).append(each)
        present = dict(zip(by_node, await asyncio.gather(*map(self._read, by_node)), strict=True))
        held = {node: [(each.uid, frozenset(each.cards)) for each in found] for node, found in by_node.items()}
        return orphans.find(held, present)

    async def _read(self, node: str) -> frozenset[str] | None:
        """Read the report of a node; None if that fails."""
        try:
            # A list, because the right to list is there for the copy anyway.
            found = await self._fenced.api.list(GPU_NODE_STATUSES, GpuNodeStatus, fieldSelector=f"metadata.name={node}")
        except SURVIVED as error:
            log.warning("the report of node %s could not be read, its pods are left alone: %s", node, error)
            return None
        return orphans.present_cards(found[0] if found else None)

    def _restore(self, suspects: Iterable[Orphan], present: Mapping[str, frozenset[str] | None]) -> None:
        """Forget the pods that have ended, and those whose cards are reported again."""
        missing = {each.uid for each in suspects}
        for uid, (orphan, name, namespace) in tuple(self._known.items()):
            pod = self._pods.get(name, namespace)
            has_ended = pod is None or pod.uid != uid
            if has_ended or (uid not in missing and present.get(orphan.node) is not None):
                del self._known[uid]
                if pod is not None and not has_ended:
                    self._state.claims.set_restored(pod)

    async def _act(self, confirmed: Iterable[Orphan]) -> None:
        by_uid = {each.uid: each for each in confirmed}
        concerned = [pod for pod in self._pods if pod.uid in by_uid and names.ALLOCATION in pod.metadata.annotations]
        for pod in concerned:
            self._report(pod, by_uid[pod.uid])
        if self._settings.missing_devices == "delete":
            doomed = [pod for pod in concerned if not pod.metadata.deletion_timestamp]
            await self._fenced.write_each(self._delete, doomed)

    def _report(self, pod: Pod, orphan: Orphan) -> None:
        cards = ", ".join(orphan.cards)
        note = f"node {orphan.node} does not have card {cards} any more, which the pod uses"
        self._state.claims.set_failed(pod.uid, "DeviceMissing", note)
        entry = (orphan, pod.metadata.name, pod.metadata.namespace)
        if self._known.get(pod.uid) != entry:
            self._known[pod.uid] = entry
            log.warning("pod %s: %s", pod, note, extra={"pod": str(pod), "uid": pod.uid, "node": orphan.node})
            self._recorder.record(pod.reference, type="Warning", reason="DeviceMissing", action="Running", note=note)

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._fenced.delete(PODS, pod.metadata)
        except (NotFoundError, ConflictError):
            log.info("pod %s is gone already", pod)
        except ClusterError as error:
            log.warning("pod %s was not deleted, trying again: %s", pod, error)
        else:
            log.info("pod %s is deleted: its card is missing", pod)
