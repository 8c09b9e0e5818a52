"""The standard streams, the same on every platform: UTF-8 with plain newlines, as kubectl reads and writes them.

What is printed comes from objects that tenants write, such as the values of variables. A terminal would obey control
characters in it, so these are printed as escapes, which JSON reads as the characters; YAML has none but newlines.
"""

import errno
import io
import os
import sys
from typing import Final, TextIO

_UTF8: Final = "utf-8"
_CONTROLS: Final = frozenset((*range(0x20), *range(0x7F, 0xA0))) - {ord("\t"), ord("\n")}
_ESCAPES: Final = {code: f"\\u{code:04x}" for code in _CONTROLS}


class Printed(io.TextIOWrapper):
    """A stream on which control characters are escaped, except for tabs and newlines."""

    def write(self, text: str, /) -> int:
        r"""Write text; ESC, for instance, becomes `\u001b`."""
        return super().write(text.translate(_ESCAPES))


def prepare() -> None:
    """Read and write UTF-8 whatever the locale; Windows would write its code page and CRLF to a pipe."""
    sys.stdout, sys.stderr = _printed(sys.stdout), _printed(sys.stderr)
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig")  # PowerShell begins what it pipes with a byte order mark


def _printed(stream: TextIO) -> TextIO:
    if type(stream) is not io.TextIOWrapper:  # it is one of ours already, or a test reads it
        return stream
    stream.flush()
    return Printed(
        stream.buffer,
        encoding=_UTF8,
        errors=stream.errors,
        newline="\n",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def is_unread(error: OSError) -> bool:
    """Return whether `error` says that the reader of the output, such as `head`, has ended."""
    return isinstance(error, BrokenPipeError) or (sys.platform == "win32" and error.errno == errno.EINVAL)


def discard_output() -> None:
    """Send what is still in the buffer nowhere, so that flushing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
