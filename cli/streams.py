"""The standard streams, the same on every platform: UTF-8 with plain newlines, as kubectl reads and writes them."""

import errno
import io
import os
import sys
from typing import Final

_UTF8: Final = "utf-8"


def use_utf8() -> None:
    """Read and write UTF-8 whatever the locale; Windows would write its code page and CRLF to a pipe."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=_UTF8, newline="\n")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig")  # PowerShell begins what it pipes with a byte order mark


def is_unread(error: OSError) -> bool:
    """Return whether `error` says that the reader of the output, such as `head`, has ended."""
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL)


def discard_output() -> None:
    """Send what is still in the buffer nowhere, so that flushing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
