"""A manifest that somebody asks about: YAML or JSON, answered as data or refused in words, and nothing changes."""

import msgspec

from cluster.manifest import NotAdmittedError, UnreadableManifestError
from fuzz import world
from scheduler import simulation, submission
from scheduler.submission import UnknownSchedulerError

_STATE = world.state()
_USED = _STATE.ledger.used.copy()


def try_bytes(data: bytes) -> None:
    """Ask about `data`."""
    try:
        submitted = submission.submit(_STATE, submission.parse(data), world.ADMIT)
    except UnreadableManifestError as error:
        msgspec.json.encode(str(error))
        return
    except NotAdmittedError as error:
        msgspec.json.encode(simulation.not_admitted(str(error)))
        return
    except UnknownSchedulerError:
        return
    msgspec.json.encode(simulation.simulate(_STATE, submitted))
    assert (_STATE.ledger.used == _USED).all()
    assert not len(_STATE.queue)
