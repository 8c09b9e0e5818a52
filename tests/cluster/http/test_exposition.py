"""The page of metrics, which every process serves by the same route."""

import aiohttp
from aiohttp import web
from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from cluster.http.exposition import Registry, metrics_route
from cluster.http.listener import listening


async def test_one_page_has_all_registries_in_the_text_format() -> None:
    """With the content type of Prometheus' text format, and without series that say when a counter began."""
    first, second = Registry(), Registry()
    Counter("one_total", "The first.", registry=first).inc()
    Counter("two_total", "The second.", ["kind"], registry=second).labels("a").inc(2)
    application = web.Application()
    application.add_routes([metrics_route(first, second)])
    async with (
        listening(application, host="127.0.0.1", port=0) as port,
        aiohttp.ClientSession() as client,
        client.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await answer.text()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert [(each.name, each.labels, each.value) for each in samples] == [
        ("one_total", {}, 1.0),
        ("two_total", {"kind": "a"}, 2.0),
    ]
