"""NVML from `nvmlInit` to `nvmlShutdown`; it lists what was there at `nvmlInit`, so it is opened anew to look."""

from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from agent import background
from agent.nvml import NvmlError, call

_OPEN_SECONDS: Final = 60.0  # a driver without persistence mode initialises every card first
_CLOSE_SECONDS: Final = 2.0


class NvmlSession:
    """The library, open or not.

    Attributes:
        opened: whether it has ever been open.
        driver: the driver's version, empty where unknown.
    """

    def __init__(self) -> None:
        self.opened = False
        self.driver = ""
        self._opening: Future[str] | None = None
        self._is_open = False

    def open(self) -> None:
        """Have it open.

        Raises:
            NvmlError: it cannot be opened now.
        """
        if self._is_open:
            return
        if self._opening is None:
            self._opening = background.start(_open, name="NVML init")
        try:
            self.driver = self._opening.result(_OPEN_SECONDS) or self.driver
        except TimeoutError:
            raise NvmlError(f"nvmlInit: no answer for {_OPEN_SECONDS:g} s") from None
        except NvmlError:
            self._opening = None
            raise
        self._opening = None
        self._is_open = self.opened = True

    def count(self, *, seconds: float) -> int:
        """Answer how many cards there were when it was opened.

        Raises:
            NvmlError: it does not say so within `seconds`.
        """
        counting = background.start(lambda: int(call("nvmlDeviceGetCount")), name="NVML count")
        try:
            return counting.result(seconds)
        except TimeoutError:
            raise NvmlError(f"nvmlDeviceGetCount: no answer for {seconds:g} s") from None

    def close(self) -> None:
        """Have it closed. No call may be under way."""
        if self._is_open:
            self._is_open = False
            with suppress(NvmlError, TimeoutError):
                background.start(lambda: call("nvmlShutdown"), name="NVML shutdown").result(_CLOSE_SECONDS)


def _open() -> str:
    call("nvmlInit")
    try:
        return str(call("nvmlSystemGetDriverVersion"))
    except NvmlError:
        return ""
