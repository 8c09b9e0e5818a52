"""The API server's audit log: which pods were bound by more than one write."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path


def size(log: Path) -> int:
    """Return the bytes of a log and of its older parts."""
    return sum(file.stat().st_size for file in _parts(log))


def bound_twice(log: Path, *, namespace: str, since: int) -> list[str]:
    """Return the pods for which the API server accepted two Bindings; dry runs bind nothing.

    Args:
        log: the log, in the folder of its older parts.
        namespace: the namespace of the pods, which must not reuse names.
        since: the size of the log before the first of them.
    """
    accepted: Counter[str] = Counter()
    for line in _lines(log, since):
        if b'"subresource":"binding"' not in line or not line.endswith(b"\n"):
            continue
        event = json.loads(line)
        reference = event["objectRef"]
        if "dryRun=" in event["requestURI"]:
            continue  # nothing was stored
        if reference.get("namespace") == namespace and event.get("responseStatus", {}).get("code") == 201:
            accepted[reference["name"]] += 1
    return [name for name, times in accepted.items() if times > 1]


def _parts(log: Path) -> list[Path]:
    return sorted(log.parent.glob(f"{log.stem}*{log.suffix}"))


def _lines(log: Path, since: int) -> Iterator[bytes]:
    for file in _parts(log):
        with file.open("rb") as lines:
            lines.seek(since)
            yield from lines
        since = max(0, since - file.stat().st_size)
