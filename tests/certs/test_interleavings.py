"""Replicas and commands run concurrently in any order and are killed at any point: every API server verifies each one.

Hypothesis steps each actor from request to request, advances the clock, and kills and restarts processes. An API server
may lag behind with the configuration by almost the settle time.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from certs import authority_reconciler, ca_bundle, leaf
from certs.authority_reconciler import AuthorityReconciler
from certs.replica_reconciler import IssuedReconciler
from certs.x509 import KeyPair

SETTLE = 10.0
LAG = 9.0
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
REPLICAS = 3
FIRST_TURNS = 5
CALM_TURNS = 100


class Source:
    """A source without TLS: its leaf has an authority and an expiry, by the clock of the world."""

    def __init__(self, authority: KeyPair, now: datetime) -> None:
        self.leaf = self._issued(authority, now)

    def renew(self, authority: KeyPair, *, generation: str, now: datetime) -> None:
        """Renew as `certs.source.IssuedSource` does."""
        assert not generation
        if now >= self.leaf.ends_at - leaf.LIFETIME / 3 or authority.certificate != self.leaf.authority:
            self.leaf = self._issued(authority, now)

    def prepare_next(self, authority: KeyPair | None, *, now: datetime) -> None:
        """Do nothing: this API server answers the canary without calling the webhook."""

    def _issued(self, authority: KeyPair, now: datetime) -> Any:
        ends_at = now + leaf.LIFETIME
        return SimpleNamespace(
            authority=authority.certificate, ends_at=ends_at, is_usable=lambda now: now < ends_at - leaf.EXPIRY_MARGIN
        )


@dataclass
class Actor:
    """A process: a coroutine that is suspended before its next request or between two reconciliations."""

    world: "World"
    rotates: bool = False
    source: Source | None = None
    ready: bool = False
    running: Coroutine[Any, Any, None] | None = None

    def step(self) -> None:
        """Run until the next request."""
        if self.running is None:
            self.running = self._command() if self.rotates else self._replica()
        try:
            self.running.send(None)
        except StopIteration:
            self.running = None

    def kill(self) -> None:
        """Kill the process where it is; the next step starts it again."""
        if self.running is not None:
            self.running.close()
        self.running, self.source, self.ready = None, None, False

    def _new_reconciler(self) -> AuthorityReconciler:
        return AuthorityReconciler(
            self.world.api, configuration="tranche", settle_seconds=SETTLE, clock=self.world.clock
        )

    async def _replica(self) -> None:
        authority_reconciler = self._new_reconciler()
        source = Source((await authority_reconciler.ensure_secret(now=self.world.now)).signing, self.world.now)
        self.source = source
        reconciler = IssuedReconciler(authority_reconciler, source)  # type: ignore[arg-type]
        while True:
            await reconciler.reconcile(now=self.world.now)
            self.ready = True
            await asyncio.sleep(0)

    async def _command(self) -> None:
        authority_reconciler = self._new_reconciler()
        old = (await authority_reconciler.ensure_secret(now=self.world.now)).signing.certificate
        signing = old
        while signing == old:
            signing = (
                await authority_reconciler.reconcile(now=self.world.now, replacing=old)
            ).authorities.signing.certificate
            await asyncio.sleep(0)


@dataclass
class World:
    """The API server, the clock, and all processes."""

    api: Any
    now: datetime = BEGIN
    actors: list[Actor] = field(default_factory=list)
    published: list[tuple[datetime, frozenset[x509.Certificate]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api.put_configuration(None)
        self.api.after = self._remember
        self.actors = [Actor(self) for _ in range(REPLICAS)] + [Actor(self, rotates=True)]
        for _ in range(FIRST_TURNS):
            for actor in self.actors[:REPLICAS]:
                actor.step()
        self._advance(SETTLE)

        async def wait(_method: str, _path: str) -> None:
            await asyncio.sleep(0)

        self.api.before = wait

    def clock(self) -> float:
        """Return the monotonic time in seconds."""
        return (self.now - BEGIN).total_seconds()

    def step(self, actor: int, seconds: float) -> None:
        """Advance the clock, step one actor, and check that every API server verifies every replica."""
        self._advance(seconds)
        self.actors[actor].step()
        self.check()

    def calm(self, *, seconds: float, turns: int = CALM_TURNS) -> None:
        """Run all replicas, without the command."""
        self.actors[-1].kill()
        for _ in range(turns):
            self._advance(seconds)
            for actor in self.actors[:REPLICAS]:
                actor.step()
            self.check()

    def check(self) -> None:
        """Check that every configuration that an API server may use verifies every ready replica."""
        served = {actor.source.leaf.authority for actor in self.actors if actor.ready and actor.source is not None}
        assert all(served <= trusted for _, trusted in self.published)
        assert all(a.source is None or a.source.leaf.ends_at > self.now for a in self.actors)

    def _advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        limit = self.now - timedelta(seconds=LAG)
        while len(self.published) > 1 and self.published[1][0] <= limit:
            del self.published[0]

    def _remember(self) -> None:
        self.published.append((self.now, frozenset(ca_bundle.certificates(self.api.bundles()[0]))))


@pytest.fixture(scope="module", autouse=True)
def no_pauses() -> Iterator[None]:
    """Back off without a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority_reconciler, "_back_off", lambda _turn: asyncio.sleep(0))
        yield


steps = st.lists(
    st.tuples(
        st.integers(0, REPLICAS),
        st.sampled_from([0.0, 0.0, 0.5, 3.0, SETTLE]),
        st.sampled_from(["step", "step", "step", "step", "step", "step", "kill"]),
    ),
    min_size=20,
    max_size=150,
)


@given(steps=steps)
def test_no_interleaving_fails_an_admission(make_api: Any, steps: list[tuple[int, float, str]]) -> None:
    """During any number of concurrent rotations, the certificate of each replica verifies at every API server.

    Without further events, the replicas complete the rotation, and finally one authority is left.
    """
    world = World(make_api())
    for actor, seconds, what in steps:
        if what == "kill":
            world.actors[actor].kill()
        world.step(actor, seconds)
    world.calm(seconds=0.5)
    signing = world.actors[0].source
    assert signing is not None
    assert "announced.crt" not in world.api.data()
    assert {a.source.leaf.authority for a in world.actors[:REPLICAS] if a.source} == {signing.leaf.authority}
    world.calm(seconds=7200, turns=12 * 9)
    assert set(world.api.data()) == {"tls.crt", "tls.key"}
    assert x509.load_pem_x509_certificates(world.api.bundles()[0]) == [signing.leaf.authority]


@given(
    steps=steps,
    deleted=st.lists(st.integers(0, 150), max_size=3),
    overwritten=st.lists(st.integers(0, 150), max_size=3),
)
def test_deleted_and_overwritten_objects_are_restored(
    make_api: Any, steps: list[tuple[int, float, str]], deleted: list[int], overwritten: list[int]
) -> None:
    """The Secret is deleted and the caBundle overwritten during rotations: without further events, all is restored."""
    world = World(make_api())
    world.check = lambda: None  # type: ignore[method-assign]
    for number, (actor, seconds, what) in enumerate(steps):
        if number in deleted:
            world.api.objects.pop(world.api.SECRET, None)
        if number in overwritten:
            world.api.put_configuration(b"")
        if what == "kill":
            world.actors[actor].kill()
        world.step(actor, seconds)
    world.calm(seconds=0.5)
    del world.check  # type: ignore[method-assign]
    world.calm(seconds=0.5)
    assert all(actor.ready for actor in world.actors[:REPLICAS])
    assert "announced.crt" not in world.api.data()


@given(order=st.lists(st.tuples(st.integers(0, REPLICAS - 1), st.sampled_from([0.0, 0.5, 3.0])), max_size=100))
def test_deleted_secret_fails_no_admission(make_api: Any, order: list[tuple[int, float]]) -> None:
    """Outside a rotation, the deletion is repaired, and every replica verifies at any moment."""
    world = World(make_api())
    del world.api.objects[world.api.SECRET]
    for actor, seconds in order:
        world.step(actor, seconds)
    world.calm(seconds=0.5)
