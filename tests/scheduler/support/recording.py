"""What a test reads of recorded events."""

from cluster.events import Recorder


def events(recorder: Recorder) -> list[tuple[str, str, str, str, str]]:
    """Return the events: the pod, type, reason, action and note of each."""
    return [(e.regarding.name, e.type, e.reason, e.action, e.note) for each in recorder.recent if (e := each.event)]
