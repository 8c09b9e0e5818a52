"""Idle connections."""

import asyncio
import time

from cluster.process import allow_files
from fuzz import catalogue
from tests.fuzz.conftest import HOST, Port

CONNECTIONS = 1000
AT_ONCE = 50
REVIEWS = 20
LONGEST = 2.0  # seconds; an API server waits for 10
REVIEW = (catalogue.SEEDS / "review" / "slice.json").read_bytes()


async def test_a_thousand_idle_connections_do_not_delay_reviews(webhook: tuple[Port, Port]) -> None:
    """They stay open, because an API server's own idle connections do, and reviews get their responses meanwhile."""
    allow_files()
    port = webhook[0]
    held = []
    for _ in range(CONNECTIONS // AT_ONCE):
        held += await asyncio.gather(
            *(asyncio.open_connection(HOST, port.number, ssl=port.tls) for _ in range(AT_ONCE))
        )
    longest = 0.0
    for _ in range(REVIEWS):
        begin = time.monotonic()
        assert await port.get("/mutate", REVIEW) == 200
        longest = max(longest, time.monotonic() - begin)
    assert not any(reader.at_eof() for reader, _ in held)
    for _, writer in held:
        writer.transport.abort()
    assert longest < LONGEST
