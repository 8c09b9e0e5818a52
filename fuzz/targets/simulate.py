"""Simulation of a manifest in YAML or JSON: it yields data or an error message, and changes no state."""

import msgspec

from allocation.steps import finish
from cluster.manifest import NotAdmittedError, UnreadableManifestError
from fuzz import world
from scheduler.api import manifest_pod, request_body, simulation
from scheduler.api.evictions import Evictions
from scheduler.api.manifest_pod import UnknownSchedulerError
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.preemption.disruption_budgets import DisruptionBudgets
from scheduler.volumes.objects import StorageClass

_STATE = world.state()
_STATE.storage.set_class(
    msgspec.convert({"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass)
)
_CYCLE = SchedulingCycle(_STATE)
_CHOOSER = world.chooser(_STATE, DisruptionBudgets())
_USED = _STATE.ledger.used.copy()


def try_bytes(data: bytes) -> None:
    """Simulate `data`."""
    try:
        submitted = manifest_pod.read_pod(_STATE, request_body.parse(data), world.ADMIT)
    except UnreadableManifestError as error:
        msgspec.json.encode(str(error))
        return
    except NotAdmittedError as error:
        msgspec.json.encode(simulation.not_admitted(str(error)))
        return
    except UnknownSchedulerError:
        return
    msgspec.json.encode(finish(simulation.simulate(_CYCLE, submitted, evictions=Evictions(_CHOOSER))))
    assert (_STATE.ledger.used == _USED).all()
    assert not len(_STATE.queue)
