"""How long tests wait for what must happen: it costs nothing where it happens, and slow machines need it.

The machines that run the suite differ by a factor of three, and four processes of tests share two processors. A test
that measures how long something takes has limits of its own.
"""

import os
from typing import Final

PATIENCE_S: Final = float(os.environ.get("TEST_PATIENCE_SECONDS", "180"))
POLL_S: Final = 0.2
"""The pause between two questions to the API server: shorter, asking takes more processor time than what is tested."""
KUBECTL_PATIENCE: Final = f"--timeout={PATIENCE_S:g}s"
"""The same for `kubectl wait`, `rollout` and `delete`."""
