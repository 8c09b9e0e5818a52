"""NVML between `nvmlInit` and `nvmlShutdown`.

NVML lists the cards that existed at `nvmlInit`, so a session has to be opened again to find others.
"""

from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from agent import daemon_call
from agent.nvml.nvml import NvmlError, call

_OPEN_SECONDS: Final = 60.0  # a driver without persistence mode initialises every card first
_CLOSE_SECONDS: Final = 2.0


class NvmlSession:
    """The library, open or closed.

    Attributes:
        has_opened: whether it has ever been open.
        driver: the driver's version; empty if unknown.
    """

    def __init__(self) -> None:
        self.has_opened = False
        self.driver = ""
        self._opening: Future[str] | None = None
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether NVML may be called."""
        return self._is_open

    def open(self) -> None:
        """Open the library, unless it is open.

        Raises:
            NvmlError: the library cannot be opened now.
        """
        if self._is_open:
            return
        if self._opening is None:
            self._opening = daemon_call.start(_open, name="NVML init")
        try:
            self.driver = self._opening.result(_OPEN_SECONDS) or self.driver
        except TimeoutError:
            raise NvmlError(f"nvmlInit: no response within {_OPEN_SECONDS:g} s") from None
        except NvmlError:
            self._opening = None
            raise
        self._opening = None
        self._is_open = self.has_opened = True

    def count(self, *, seconds: float) -> int:
        """Return the number of cards that existed when the library was opened.

        Raises:
            NvmlError: the call failed or did not return within `seconds`.
        """
        counting = daemon_call.start(lambda: int(call("nvmlDeviceGetCount")), name="NVML count")
        try:
            return counting.result(seconds)
        except TimeoutError:
            raise NvmlError(f"nvmlDeviceGetCount: no response within {seconds:g} s") from None

    def close(self) -> None:
        """Close the library. No call may be in progress."""
        if self._is_open:
            self._is_open = False
            with suppress(NvmlError, TimeoutError):
                daemon_call.start(lambda: call("nvmlShutdown"), name="NVML shutdown").result(_CLOSE_SECONDS)


def _open() -> str:
    call("nvmlInit")
    try:
        return str(call("nvmlSystemGetDriverVersion"))
    except NvmlError:
        return ""
