"""The API server's audit log: which pods were bound by more than one write."""

import json
from collections import Counter
from pathlib import Path


def bound_twice(log: Path, *, namespace: str) -> list[str]:
    """Return the pods for which the API server accepted two Bindings; the namespace must not reuse names."""
    accepted: Counter[str] = Counter()
    for file in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if '"subresource":"binding"' not in line or not line.endswith("\n"):
                    continue
                event = json.loads(line)
                reference = event["objectRef"]
                if reference.get("namespace") == namespace and event.get("responseStatus", {}).get("code") == 201:
                    accepted[reference["name"]] += 1
    return [name for name, times in accepted.items() if times > 1]
