"""The log of every process: one line per record, as logfmt or JSON, on standard error.

A record's `extra` becomes fields of its line, such as `pod` and `uid`; the message is a sentence for people. Values
are escaped, so that none from outside can break a line or control a terminal.

The lines of one iteration of the event loop are written together, so that a line does not cost a system call. Errors,
and lines from outside the event loop, are written at once.
"""

import asyncio
import functools
import json
import logging
import re
import sys
import time
from contextlib import nullcontext
from itertools import islice
from typing import Any, Final, Literal, TextIO

import msgspec

_STANDARD: Final = len(vars(logging.makeLogRecord({})))
"""Attributes that every record has, before those of its `extra`."""
_FORMATTED: Final = ("message", "asctime")  # set by the formatters of other handlers
_bare: Final = re.compile(r"[!#-<>-\[\]-~]+").fullmatch
_plain: Final = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""ASCII that needs no escapes, without and within quotes; any other text takes the slow path."""
_to_json: Final = json.JSONEncoder(default=str).encode


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the log.

    Attributes:
        level: the lowest level that is written.
        format: `logfmt`, which is easy to read for people, or `json`.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class _Formatter(logging.Formatter):
    """Collects the fields of a record for both formats."""

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        fields = {
            "time": f"{_second(int(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        fields.update(islice(vars(record).items(), _STANDARD, None))
        for name in _FORMATTED:
            fields.pop(name, None)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class Logfmt(_Formatter):
    """`time=… level=info logger=scheduler.loop msg="pod a/b waits: …" pod=a/b uid=…`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in self._fields(record).items())


class Json(_Formatter):
    """The same fields as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return _to_json(self._fields(record))


class _BatchingHandler(logging.StreamHandler[TextIO]):
    """Writes all lines of one iteration of the event loop at once."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line; it is written before the event loop waits again."""
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 -- as in `logging`, a record that cannot be formatted stops nothing
            self.handleError(record)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
        else:
            if record.levelno >= logging.ERROR:
                self.flush()
            elif len(self._lines) == 1:
                loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the queued lines; `logging` also calls this when the process exits."""
        with self.lock or nullcontext():
            if self._lines:
                text = "".join(self._lines)
                self._lines.clear()
                self.stream.write(text)
            super().flush()


def set_up(settings: LogSettings) -> None:
    """Configure the log of this process."""
    # Skip collecting what no line shows (section "Optimization" of Python's logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001
    handler = _BatchingHandler(sys.stderr)
    handler.setFormatter(Json() if settings.format == "json" else Logfmt())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)


@functools.lru_cache(2)
def _second(unix: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix))


def _quoted(text: str) -> str:
    if _bare(text):
        return text
    if _plain(text):
        return f'"{text}"'
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in quoted)
