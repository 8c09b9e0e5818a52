"""A rolling restart under load: replicas are replaced one by one, and users who create pods do not notice."""

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
from cluster.connect import connect
from lab.client import client
from tests.certs.support import replicas
from tests.support.depth import repetitions

if TYPE_CHECKING:
    from lab.layout import Layout

pytestmark = pytest.mark.apiserver
ROUNDS = repetitions(1, 3)
REVIEWS_A_SECOND = 20.0
PODS_A_SECOND = 8.0
PODS = 100
MOST_ROUNDS = 5 * ROUNDS
"""Restarts go on until the load was one."""


async def test_rolling_restart_loses_no_admission_and_no_pod(empty_cluster: Layout) -> None:
    """SIGTERM to each webhook and each scheduler in turn, the next when the successor is ready.

    Meanwhile reviews and pods arrive: the webhook admits each at the first attempt, and each pod gets a node.
    """
    async with (
        world.running(empty_cluster, Settings()) as cluster,
        connect(program="tranche-test", kubeconfig=str(empty_cluster.kubeconfig)) as connection,
    ):
        api = Api(connection)
        team = {"name": replicas.TEAM, "labels": {"gpu.scheduling/injection": "enabled"}}
        await asyncio.to_thread(
            client(empty_cluster).apply, {"apiVersion": "v1", "kind": "Namespace", "metadata": team}
        )
        await replicas.eventually(lambda: replicas.is_admitted(api))
        before = await replicas.failed_calls(api)
        settings = Settings()
        checker = Checker(api, patience_seconds=settings.patience_seconds, lease_seconds=settings.lease_seconds)
        pods = Load(
            api,
            namespace=world.NAMESPACE,
            books=checker.books,
            draw=Random(1),  # noqa: S311 -- not a secret
            rate=PODS_A_SECOND,
            claims=settings.claims,
            gangs=settings.gangs,
            population=PODS,
        )
        await pods.create_claims()
        async with (
            checker.watching(),
            pods.coming_and_going(),
            replicas.load(api, workers=8, rate=REVIEWS_A_SECOND) as reviews,
        ):
            every = (*cluster.webhooks, *cluster.schedulers)
            for number, replica in enumerate(every * MOST_ROUNDS):
                if number >= len(every) * ROUNDS and min(pods.created, reviews.admitted) > PODS:
                    break
                await asyncio.to_thread(replica.stop)
                replica.start()
                await asyncio.to_thread(replica.until_ready)
            pods.stop()
            assert await settle(cluster, checker.books) == []
        assert checker.books.violations == []
        assert reviews.failures == []
        assert pods.refused == 0
        assert await replicas.failed_calls(api) == before
        assert pods.created > PODS
        assert reviews.admitted > PODS
