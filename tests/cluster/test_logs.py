"""Every record is one line that machines can parse."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.logs import Json, Logfmt, LogSettings, set_up

_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s="\\]+)(?: |$)')


def record(message: str, **fields: str) -> logging.LogRecord:
    """Return a record as `log.info(message, extra=fields)` makes it."""
    return logging.makeLogRecord({"name": "scheduler.loop", "levelname": "INFO", "msg": message, "args": (), **fields})


@given(st.text(), st.text())
def test_any_value_stays_within_its_field(message: str, pod: str) -> None:
    """A line has no newline or control character, and every field can be parsed."""
    line = Logfmt().format(record(message, pod=pod))
    assert line.isprintable()
    fields = {name: json.loads(value) if value[0] == '"' else value for name, value in _PAIR.findall(line)}
    if message.isprintable() and pod.isprintable():
        assert (fields["msg"], fields["pod"]) == (message, pod)
    parsed = json.loads(Json().format(record(message, pod=pod)))
    assert (parsed["msg"], parsed["pod"], parsed["level"]) == (message, pod, "info")


def test_plain_message_is_not_escaped() -> None:
    """Only values that need quotes have them."""
    line = Logfmt().format(record("pod a/b waits: 8/8 CardNotHealth", pod="a/b", uid="1-2"))
    assert line.endswith('level=info logger=scheduler.loop msg="pod a/b waits: 8/8 CardNotHealth" pod=a/b uid=1-2')
    assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)


@pytest.mark.parametrize("formatter", [Logfmt(), Json()])
def test_traceback_is_part_of_its_line(formatter: logging.Formatter) -> None:
    """It shows the error without splitting the line."""
    try:
        int("defect")
    except ValueError:
        made = record("not done")
        made.exc_info = sys.exc_info()
    line = formatter.format(made)
    assert "\n" not in line
    assert "ValueError: invalid literal" in line


class _Stream(io.StringIO):
    """Records the text of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def write(self, text: str, /) -> int:
        self.writes.append(text)
        return len(text)


@pytest.fixture
def stream() -> Iterator[_Stream]:
    """Standard error, to which the log is configured to write."""
    root, optimised = logging.getLogger(), (logging.logThreads, logging.logProcesses, logging.logMultiprocessing)
    kept, source = (root.handlers[:], root.level), logging._srcfile  # type: ignore[attr-defined]
    made = _Stream()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stderr", made)
        root.handlers = []
        set_up(LogSettings())
        yield made
    root.handlers, root.level = kept
    logging.logThreads, logging.logProcesses, logging.logMultiprocessing = optimised
    logging._srcfile = source  # type: ignore[attr-defined]


async def test_lines_of_one_iteration_are_written_together(stream: _Stream) -> None:
    """They keep their order and precede later callbacks; an error is written at once."""
    log = logging.getLogger("tests")
    log.info("first")
    log.info("second")
    assert stream.writes == []
    await asyncio.sleep(0)
    (text,) = stream.writes
    assert re.findall(r"msg=(\w+)", text) == ["first", "second"]
    log.info("third")
    log.error("wrong")
    assert re.findall(r"msg=(\w+)", stream.writes[1]) == ["third", "wrong"]


async def test_lines_of_other_threads_are_written_at_once(stream: _Stream) -> None:
    """No event loop would write them later."""
    log = logging.getLogger("tests")
    log.info("here")
    await asyncio.to_thread(log.info, "there")
    assert re.findall(r"msg=(\w+)", "".join(stream.writes)) == ["here", "there"]


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise ValueError('defect')", "loop.stop()"])
def test_no_line_is_lost_at_exit(end: str) -> None:
    """Lines of the last iteration are written, however the process ends."""
    code = f"""
import asyncio, logging, sys
from cluster import logs
async def main():
    loop = asyncio.get_running_loop()
    logging.getLogger("tests").info("the last word")
    {end}
logs.set_up(logs.LogSettings())
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.count('msg="the last word"') == 1
