"""The isolations that a node offers, as its agent found them, and why it does not offer the others."""

from typing import Final

import msgspec

from allocation.isolation import Isolation

UNDIVIDED: Final = frozenset({Isolation.HAMI_CORE, Isolation.MPS, Isolation.CUDA})
"""The isolations of containers that share a card; each needs something of the node, which its agent looks for."""
LONGEST_MESSAGE: Final = 256
"""Characters of a reason that are kept: reports come from other machines."""


class IsolationProblem(msgspec.Struct, frozen=True):
    """Why a node does not offer an isolation.

    Attributes:
        isolation: its word.
        message: what the agent asked for and did not find.
    """

    isolation: str
    message: str


class NodeIsolation(msgspec.Struct, frozen=True, cache_hash=True):
    """What can enforce the limits of containers that share a card of a node; nodes of one machine type have equal ones.

    MIG instances are cards of their own, so each of them says by itself that it is one.

    Attributes:
        offered: among `UNDIVIDED`.
        problems: of the others, as far as the agent reports them.
    """

    offered: frozenset[Isolation] = frozenset()
    problems: tuple[IsolationProblem, ...] = ()

    def rejection(self, isolation: Isolation) -> str:
        """Return why the node does not take a pod with an isolation, in words; empty if it does."""
        if isolation not in UNDIVIDED or isolation in self.offered:
            return ""
        reasons = (problem.message for problem in self.problems if problem.isolation == isolation)
        return f"isolation {isolation}: {next(reasons, 'no agent of the node offers it')}"


NO_ISOLATION = NodeIsolation()


def reported(offered: list[str], problems: tuple[IsolationProblem, ...]) -> NodeIsolation:
    """Return what an agent reports, without words that are not known here, and each reason within its bound."""
    if not problems and UNDIVIDED.isdisjoint(offered):
        return NO_ISOLATION
    return NodeIsolation(
        frozenset(each for each in UNDIVIDED if each in offered),
        tuple(
            IsolationProblem(each.value, problem.message[:LONGEST_MESSAGE])
            for each in sorted(UNDIVIDED)
            for problem in problems
            if problem.isolation == each
        ),
    )
