"""How deep tests look: `make test` repeats little, `make test-deep` (TEST_DEPTH=deep) looks for rare failures."""

import os
from typing import Final

DEEP: Final = os.environ.get("TEST_DEPTH") == "deep"


def repetitions(few: int, many: int) -> int:
    """Return how often a test repeats: `few` times in `make test`, `many` times in `make test-deep`."""
    return many if DEEP else few
