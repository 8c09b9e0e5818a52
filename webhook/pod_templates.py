"""Completes the pod templates of workloads, so that a reader of a template counts what its pods will hold.

A queueing system such as Kueue charges a Job by its template, before there is any pod. Templates are completed by the
mutation of a pod; of this only what says how much the pods need and of which nodes is written into the template. All
else, the environment and the scheduler among it, is added to the pods themselves.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from allocation import names
from webhook.mutation import Mutation
from webhook.patch import Operation, pointer
from webhook.review import UNREADABLE, GroupVersionKind, Pod

MAX_TEMPLATES: Final = 64
"""Templates of one object that are completed, many times what real JobSets have: an object of 3 MiB could hold 10,000
and would keep all other reviews waiting."""

_needs: Final = re.compile(
    r"/spec/(?:nodeSelector|(?:initContainers|containers)/[0-9]+/resources)(?:/.*)?", re.DOTALL
).fullmatch
"""Matches the JSON Pointers, in a pod, of what Kueue counts and by which it chooses a flavour."""


class _TemplateSpec(msgspec.Struct):
    template: Pod = msgspec.field(default_factory=Pod)


class _Workload(msgspec.Struct):
    """A Job or a Deployment."""

    spec: _TemplateSpec = msgspec.field(default_factory=_TemplateSpec)


class _ReplicatedJob(msgspec.Struct):
    template: _Workload = msgspec.field(default_factory=_Workload)


class _JobSetSpec(msgspec.Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] = []


class _JobSet(msgspec.Struct):
    spec: _JobSetSpec = msgspec.field(default_factory=_JobSetSpec)


class Template(msgspec.Struct, frozen=True):
    """A pod template of a workload.

    Attributes:
        path: its JSON Pointer in the workload.
        field: its path in the workload, for messages.
        pod: the template as the pod that is made of it.
    """

    path: str
    field: str
    pod: Pod


_Steps = tuple[str | int, ...]
"""The way to a part of an object: names of members, and positions in arrays."""


class UnreadableWorkloadError(ValueError):
    """The templates of a workload are too many, or cannot be read: its API may be newer than this code."""


_workload_decoder: Final[msgspec.json.Decoder[_Workload]] = msgspec.json.Decoder(_Workload)
_job_set_decoder: Final[msgspec.json.Decoder[_JobSet]] = msgspec.json.Decoder(_JobSet)
_JOB_SET: Final = ("jobset.x-k8s.io", "JobSet")
_KINDS: Final = frozenset((("batch", "Job"), ("apps", "Deployment"), _JOB_SET))
"""The groups and kinds of which each template is completed (manifests/complete-templates)."""


def are_in(kind: GroupVersionKind) -> bool:
    """Whether objects of this kind have templates that admission completes."""
    return (kind.group, kind.kind) in _KINDS


def read(kind: GroupVersionKind, sent: msgspec.Raw) -> list[Template]:
    """Return the templates of a new workload, for whose kind `are_in` is true.

    One without containers is left to the API server, which validates the workload afterwards.

    Raises:
        UnreadableWorkloadError: the message says what is wrong, and where.
    """
    try:
        if (kind.group, kind.kind) != _JOB_SET:
            workloads: dict[_Steps, _Workload] = {(): _workload_decoder.decode(sent)}
        else:
            jobs = _job_set_decoder.decode(sent).spec.replicated_jobs
            workloads = {("spec", "replicatedJobs", at, "template"): job.template for at, job in enumerate(jobs)}
    except UNREADABLE as error:
        raise UnreadableWorkloadError(f"they cannot be read: {error}") from None
    if len(workloads) > MAX_TEMPLATES:
        raise UnreadableWorkloadError(f"there are {len(workloads)}, and {MAX_TEMPLATES} is the limit")
    return [_template(workload, at) for at, workload in workloads.items() if workload.spec.template.spec.containers]


def completion(template: Template, mutation: Mutation) -> Iterator[Operation]:
    """Iterate over the operations that complete a template as `mutation` completes a pod that is made of it.

    Pods that are known to be for Tranche only because they request nothing, and their queue says what they get, are
    completed when they are created: a template that stated it would make ordinary pods of them.
    """
    if not mutation.has_gpus and names.RESREQ not in (template.pod.metadata.annotations or {}):
        return
    for each in mutation.operations:
        if _needs(each.path):
            yield msgspec.structs.replace(each, path=template.path + each.path)


def _template(workload: _Workload, at: _Steps) -> Template:
    steps = (*at, "spec", "template")
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return Template(pointer(*steps), field, workload.spec.template)
