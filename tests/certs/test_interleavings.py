"""Any number of replicas and commands at once, in any order, killed anywhere: no API server ever fails to verify one.

Actors are stepped from request to request by hypothesis, which also moves the clock, ends processes and starts them
again. An API server may lag behind with the configuration by almost the settle time.
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

from certs import ca_bundle, keeper, leaf
from certs.keeper import Keeper
from certs.upkeep import IssuedUpkeep
from certs.x509 import KeyPair

SETTLE = 10.0
LAG = 9.0
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
REPLICAS = 3
FIRST_TURNS = 5
CALM_TURNS = 100


class Source:
    """A leaf without TLS: who signed it and how long it lasts, by the world's clock."""

    def __init__(self, authority: KeyPair, now: datetime) -> None:
        self.leaf = self._issued(authority, now)

    def renew(self, authority: KeyPair, *, generation: str, now: datetime) -> None:
        """As `certs.source.IssuedSource` does it."""
        assert not generation
        if now >= self.leaf.ends_at - leaf.LIFETIME / 3 or authority.certificate != self.leaf.authority:
            self.leaf = self._issued(authority, now)

    def rehearse(self, authority: KeyPair | None, *, now: datetime) -> None:
        """Nobody looks: the canary of this API server answers for itself."""

    def _issued(self, authority: KeyPair, now: datetime) -> Any:
        ends_at = now + leaf.LIFETIME
        return SimpleNamespace(
            authority=authority.certificate, ends_at=ends_at, lasts=lambda now: now < ends_at - leaf.LAST_CALL
        )


@dataclass
class Actor:
    """A process: a coroutine that stands before its next request or waits for its next turn."""

    world: "World"
    rotates: bool = False
    source: Source | None = None
    ready: bool = False
    running: Coroutine[Any, Any, None] | None = None

    def step(self) -> None:
        """Let it go on to its next request."""
        if self.running is None:
            self.running = self._command() if self.rotates else self._replica()
        try:
            self.running.send(None)
        except StopIteration:
            self.running = None

    def kill(self) -> None:
        """End it where it stands; the next step starts it anew."""
        if self.running is not None:
            self.running.close()
        self.running, self.source, self.ready = None, None, False

    def _keeper(self) -> Keeper:
        return Keeper(self.world.api, configuration="tranche", settle_seconds=SETTLE, clock=self.world.clock)

    async def _replica(self) -> None:
        keeper = self._keeper()
        source = Source((await keeper.signing(now=self.world.now)).signing, self.world.now)
        self.source = source
        upkeep = IssuedUpkeep(keeper, source)  # type: ignore[arg-type]
        while True:
            await upkeep.once(now=self.world.now)
            self.ready = True
            await asyncio.sleep(0)

    async def _command(self) -> None:
        keeper = self._keeper()
        old = (await keeper.signing(now=self.world.now)).signing.certificate
        signing = old
        while signing == old:
            signing = (await keeper.tick(now=self.world.now, replacing=old)).authorities.signing.certificate
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
        self._pass(SETTLE)

        async def wait(_method: str, _path: str) -> None:
            await asyncio.sleep(0)

        self.api.before = wait

    def clock(self) -> float:
        """Answer seconds of a monotonic clock."""
        return (self.now - BEGIN).total_seconds()

    def step(self, actor: int, seconds: float) -> None:
        """Let time pass, then let one go on; whoever calls whom at any moment is served."""
        self._pass(seconds)
        self.actors[actor].step()
        self.check()

    def calm(self, *, seconds: float, turns: int = CALM_TURNS) -> None:
        """Let all replicas run on, and no command."""
        self.actors[-1].kill()
        for _ in range(turns):
            self._pass(seconds)
            for actor in self.actors[:REPLICAS]:
                actor.step()
            self.check()

    def check(self) -> None:
        """Every configuration that an API server may go by verifies every replica that is ready."""
        shown = {actor.source.leaf.authority for actor in self.actors if actor.ready and actor.source is not None}
        assert all(shown <= believed for _, believed in self.published)
        assert all(a.source is None or a.source.leaf.ends_at > self.now for a in self.actors)

    def _pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        limit = self.now - timedelta(seconds=LAG)
        while len(self.published) > 1 and self.published[1][0] <= limit:
            del self.published[0]

    def _remember(self) -> None:
        self.published.append((self.now, frozenset(ca_bundle.certificates(self.api.bundles()[0]))))


@pytest.fixture(scope="module", autouse=True)
def no_pauses() -> Iterator[None]:
    """Who loses a race gives way, without a clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeper, "_give_way", lambda _turn: asyncio.sleep(0))
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
def test_no_order_of_events_makes_an_admission_fail(make_api: Any, steps: list[tuple[int, float, str]]) -> None:
    """Rotation upon rotation, by several at once: each replica's certificate verifies at every API server, always.

    Left alone, the replicas complete what is under way, and at last one authority is left.
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
    steps=steps, deleted=st.lists(st.integers(0, 150), max_size=3), stomped=st.lists(st.integers(0, 150), max_size=3)
)
def test_whatever_is_deleted_or_overwritten_comes_back(
    make_api: Any, steps: list[tuple[int, float, str]], deleted: list[int], stomped: list[int]
) -> None:
    """Somebody deletes the Secret and overwrites the caBundle in the midst of it: left alone, all is well again."""
    world = World(make_api())
    world.check = lambda: None  # type: ignore[method-assign]
    for number, (actor, seconds, what) in enumerate(steps):
        if number in deleted:
            world.api.objects.pop(world.api.SECRET, None)
        if number in stomped:
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
def test_a_deleted_secret_harms_nobody(make_api: Any, order: list[tuple[int, float]]) -> None:
    """While no rotation is under way, its deletion is healed without one moment in which a replica fails."""
    world = World(make_api())
    del world.api.objects[world.api.SECRET]
    for actor, seconds in order:
        world.step(actor, seconds)
    world.calm(seconds=0.5)
