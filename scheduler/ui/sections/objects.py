"""Gangs, GpuClaims and GPUBindings, each with how far its pods are."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from allocation.bindings import problems
from allocation.steps import Steps
from scheduler.api.json_names import json_name
from scheduler.claims.users import ClaimUser
from scheduler.term import LeaderTerm
from scheduler.ui.sections.rows import Keyed, fill
from scheduler.ui.table import Table
from scheduler.ui.viewer import CLUSTER

_MOST_PODS: Final = 50
"""The pods of a claim that are shown."""


class ClaimRow(msgspec.Struct, frozen=True, rename=json_name):
    """A GpuClaim: what it gives each pod that names it, and the first of these pods by age."""

    count: int
    exclusivity: str
    memory_mib: int | None
    cores: int | None
    profile: str
    phase: str
    pods: int
    users: tuple[ClaimUser, ...]


class BindingRow(msgspec.Struct, frozen=True, rename=json_name):
    """A GPUBinding: the card, the application that it belongs to, and what is wrong with the binding.

    `node` is empty if no node reports the card.
    """

    app: str
    owner: str
    namespace: str
    uuid: str
    node: str
    memory: str
    problems: tuple[str, ...]


class Gangs:
    """The first gangs by namespace and name, as the API has them, without their pods."""

    def __init__(self, term: LeaderTerm) -> None:
        self._queries = term.queries

    def refresh(self, table: Table) -> Steps[None]:
        """Read the gangs."""
        view = yield from self._queries.gangs()
        yield from fill(table, ((f"{each.namespace}/{each.name}", each.namespace, each) for each in view.gangs))


class Claims:
    """The claims of all namespaces, with the pods that name them."""

    def __init__(self, term: LeaderTerm) -> None:
        self._claims = term.state.claims

    def refresh(self, table: Table) -> Steps[None]:
        """Read the claims."""
        yield from fill(table, self._rows())

    def _rows(self) -> Iterator[Keyed]:
        for claim in self._claims:
            devices, users = claim.spec.devices, self._claims.pods(claim)
            yield (
                f"{claim.metadata.namespace}/{claim.metadata.name}",
                claim.metadata.namespace,
                ClaimRow(
                    count=devices.count,
                    exclusivity=devices.exclusivity,
                    memory_mib=devices.memory_mib,
                    cores=devices.cores,
                    profile=devices.profile,
                    phase=users.phase if users is not None else "Pending",
                    pods=len(users) if users is not None else 0,
                    users=tuple(islice(sorted(users.values(), key=_age), _MOST_PODS)) if users is not None else (),
                ),
            )


class Bindings:
    """The bindings. One without a namespace gives its card to pods of any, so only administrators see it."""

    def __init__(self, term: LeaderTerm) -> None:
        self._bindings, self._ledger = term.state.bindings, term.state.ledger

    def refresh(self, table: Table) -> Steps[None]:
        """Read the bindings; without the setting that applies them the list is empty."""
        yield from fill(table, self._rows())

    def _rows(self) -> Iterator[Keyed]:
        for binding in self._bindings:
            spec, position = binding.spec, self._ledger.position(binding.spec.card)
            row = BindingRow(
                app=spec.app_name,
                owner=spec.owner,
                namespace=spec.namespace,
                uuid=spec.uuid,
                node=self._ledger.node(position[0]) if position is not None else "",
                memory=str(spec.memory) if spec.memory is not None else "",
                problems=problems.of_binding(spec, is_known=position is not None),
            )
            yield binding.name, spec.namespace or CLUSTER, row


def _age(user: ClaimUser) -> tuple[str, str]:
    return user.created, user.pod
