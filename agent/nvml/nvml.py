"""Calls NVML functions by name, and adds the name of the function to every error.

`pynvml` is NVIDIA's binding; it loads the driver's `libnvidia-ml.so.1` if there is one.
"""

import ctypes
from typing import Any, Final

import pynvml

_LIBRARY: Final = "libnvidia-ml.so.1"

_NOT_THERE: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,  # an NVLink that the card does not have
    }
)
_UNUSABLE: Final = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})


class NvmlError(Exception):
    """A call failed; the message is the name of the function and NVML's message, `code` NVML's number if it has one."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class NotThereError(NvmlError):
    """The card, the driver or the platform does not have the requested feature or object."""


class UnusableCardError(NvmlError):
    """The card is lost or needs a reset."""


class NoEventError(NvmlError):
    """A wait for events ended without one."""


def call(function: str, *arguments: Any) -> Any:
    """Call an NVML function by its name.

    Raises:
        NvmlError: the call failed.
    """
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        code = getattr(error, "value", None)
        text = f"{function}: {error}"
    if code in _UNUSABLE:
        raise UnusableCardError(text, code=code)
    if code in _NOT_THERE:
        raise NotThereError(text, code=code)
    if code == pynvml.NVML_ERROR_TIMEOUT:
        raise NoEventError(text, code=code)
    raise NvmlError(text, code=code)


def has_function(name: str) -> bool:
    """Whether the driver's library has a function, which `pynvml` may not know."""
    try:
        return hasattr(ctypes.CDLL(_LIBRARY), name)
    except OSError:
        return False


def field(handle: Any, number: int, scope: int = 0) -> int:
    """Return a field value that is a whole number; `scope` is for example the number of an NVLink.

    Raises:
        NvmlError: the field cannot be read.
    """
    value = call("nvmlDeviceGetFieldValues", handle, [(number, scope)])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        kind = NotThereError if value.nvmlReturn in _NOT_THERE else NvmlError
        raise kind(f"nvmlDeviceGetFieldValues, field {number}: {pynvml.NVMLError(value.nvmlReturn)}")
    if value.valueType in (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG):
        return int(value.value.ullVal)
    return int(value.value.uiVal)


def bus_id(pci: Any) -> str:
    """Return a PCI address as the kernel formats it: `0000:18:00.0`; NVML's own text has a domain of eight digits."""
    return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
