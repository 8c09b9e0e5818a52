"""The API server's own diary: which pods were bound by more than one write."""

import json
from collections import Counter
from pathlib import Path


def bound_twice(log: Path, *, namespace: str) -> list[str]:
    """Answer the pods of a namespace, in which no name is used again, of whom two Bindings were taken."""
    taken: Counter[str] = Counter()
    for file in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if '"subresource":"binding"' not in line or not line.endswith("\n"):
                    continue
                event = json.loads(line)
                reference = event["objectRef"]
                if reference.get("namespace") == namespace and event.get("responseStatus", {}).get("code") == 201:
                    taken[reference["name"]] += 1
    return [name for name, times in taken.items() if times > 1]
