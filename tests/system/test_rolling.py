"""An upgrade under load: replica after replica is replaced, and nobody who creates pods notices."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest

from chaos import world
from chaos.checker import Checker
from chaos.load import Load
from chaos.settings import Settings
from chaos.settling import settle
from cluster.api import Api
from cluster.connection import connect
from lab import kubectl
from tests.certs import replicas

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300)]
ROUNDS = 2
REVIEWS_A_SECOND = 50.0
PODS_A_SECOND = 8.0
PODS = 100


async def test_a_rolling_restart_loses_no_admission_and_no_pod(own_layout: Layout) -> None:
    """SIGTERM to each webhook and each scheduler in turn, the next one when its successor is ready.

    Meanwhile reviews and pods without end: each is admitted at its first try, by a webhook, and each pod has its node.
    """
    async with (
        world.running(own_layout, Settings()) as place,
        connect(kubeconfig=str(own_layout.kubeconfig)) as connection,
    ):
        api = Api(connection)
        team = {"name": replicas.TEAM, "labels": {"gpu.scheduling/injection": "enabled"}}
        await asyncio.to_thread(kubectl.apply, own_layout, {"apiVersion": "v1", "kind": "Namespace", "metadata": team})
        await replicas.eventually(lambda: replicas.is_admitted(api))
        before = await replicas.failed_calls(api)
        checker = Checker(api, patience_seconds=Settings().patience_seconds)
        pods = Load(
            api,
            namespace=world.NAMESPACE,
            books=checker.books,
            draw=Random(1),  # noqa: S311 -- no secret
            rate=PODS_A_SECOND,
            population=PODS,
        )
        async with (
            checker.watching(),
            pods.coming_and_going(),
            replicas.load(api, workers=8, rate=REVIEWS_A_SECOND) as reviews,
        ):
            for replica in (*place.webhooks, *place.schedulers) * ROUNDS:
                await asyncio.to_thread(replica.stop)
                replica.start()
                await asyncio.to_thread(replica.until_ready)
            pods.stop()
            assert await settle(place, checker.books) == []
        assert checker.books.violations == []
        assert reviews.failures == []
        assert pods.refused == 0
        assert await replicas.failed_calls(api) == before
        assert pods.created > PODS
        assert reviews.admitted > PODS
