"""How every process of ours writes its log: one line for each record, as logfmt or as JSON, on standard error.

A record's `extra` gives the fields of its line, such as `pod` and `uid`; the message stays a sentence for people. What
comes from outside may hold anything: a line is never broken by it, and no terminal is steered by it.

The lines of one turn of the event loop are written together, so a line costs no system call of its own. An error is
written at once, and so is what is logged outside of a loop.
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
_FORMATTED: Final = ("message", "asctime")  # another handler's formatter leaves them
_bare: Final = re.compile(r"[!#-<>-\[\]-~]+").fullmatch
_plain: Final = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""ASCII that may stand as it is, without quotes and within them; anything else is looked at closely."""
_to_json: Final = json.JSONEncoder(default=str).encode


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an administrator may decide about logs.

    Attributes:
        level: the least that is written.
        format: `logfmt`, which people read easily, or `json`.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["logfmt", "json"] = "logfmt"


class _Formatter(logging.Formatter):
    """The fields of a record, the same in either format."""

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
        """Answer the line."""
        return " ".join(f"{name}={_quoted(str(value))}" for name, value in self._fields(record).items())


class Json(_Formatter):
    """The same as an object."""

    def format(self, record: logging.LogRecord) -> str:
        """Answer the line."""
        return _to_json(self._fields(record))


class _Turnwise(logging.StreamHandler[TextIO]):
    """Writes once for all lines of a turn of the event loop."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take the line; it is written before the loop waits again."""
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 - as in logging: a record that cannot be told ends nobody's work
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
        """Write what there is; `logging` calls it at the end of the process, too."""
        with self.lock or nullcontext():
            if self._lines:
                text = "".join(self._lines)
                self._lines.clear()
                self.stream.write(text)
            super().flush()


def set_up(settings: LogSettings) -> None:
    """Have this process write its log so from now on."""
    # What no line shows is not found out for each of them (the "Optimization" of Python's logging HOWTO).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None  # noqa: SLF001
    handler = _Turnwise(sys.stderr)
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
