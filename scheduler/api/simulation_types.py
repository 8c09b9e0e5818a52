"""The response of `/api/simulate-schedule`: TensorFusion's keys (docs/api.md) and, in addition, our explanation."""

from typing import Literal

import msgspec

from scheduler.api.explanation_types import Explanation


class ScheduleResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The node that the pod would go to, and the number of nodes; empty and 0 if no node takes it."""

    suggested_host: str = ""
    evaluated_nodes: int = 0
    feasible_nodes: int = 0


class FilterStage(msgspec.Struct, frozen=True, rename="pascal"):
    """The names of the nodes before and after one stage of the decision, and of those that it filtered out."""

    filter_name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    diff: tuple[str, ...]


class FilterDetail(msgspec.Struct, frozen=True, rename="pascal"):
    """The stages, in order."""

    filter_stage_details: tuple[FilterStage, ...]


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Why one node does not take the pod."""

    code: Literal["Unschedulable", "UnschedulableAndUnresolvable"]
    plugin: str
    reasons: tuple[str, ...]
    message: str


class NodeToStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of each node that does not take the pod."""

    nodes: dict[str, NodeStatus]
    absent_nodes_status: None = None


class Diagnosis(msgspec.Struct, frozen=True, rename="camel"):
    """Why no node takes the pod; `pre_filter_msg` is the reason if no node was evaluated."""

    unschedulable_plugins: tuple[str, ...]
    node_to_status: NodeToStatus
    pre_filter_msg: str = ""
    post_filter_msg: str = ""
    pending_plugins: tuple[str, ...] = ()


class SimulationError(msgspec.Struct, frozen=True, rename="camel"):
    """Why the pod would not be scheduled.

    Attributes:
        type: `NotAdmitted`, admission refuses the pod; `Held`, only a change of its spec helps; `FitError`, no node
            takes it now.
        message: the reason.
        num_all_nodes: the number of nodes; only for `FitError`, and not if no node is evaluated, because the pod's
            GpuClaim does not exist, no GPUBinding gives it a card, or its GpuQueue does not take it.
        diagnosis: the reason for each node; only for `FitError`.
    """

    type: Literal["NotAdmitted", "Held", "FitError"]
    message: str
    num_all_nodes: int | msgspec.UnsetType = msgspec.UNSET
    diagnosis: Diagnosis | msgspec.UnsetType = msgspec.UNSET


class GpuSchedulerState(msgspec.Struct, frozen=True):
    """The UUIDs of the cards on the nodes that take the pod, with scores of those that fit and those that do not."""

    node_gpus: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="NodeGPUs")
    valid: dict[str, dict[str, float]] = msgspec.field(default_factory=dict, name="ValidNodeGPUScore")
    not_matching: dict[str, dict[str, float]] = msgspec.field(default_factory=dict, name="ValidNodeNotMatchingGPUScore")
    final_gpus: tuple[str, ...] = msgspec.field(default=(), name="FinalGPUs")


class Simulation(msgspec.Struct, frozen=True, rename="camel"):
    """What the scheduler would do with the pod.

    Attributes:
        schedule_result: the node that the pod would go to.
        filter_detail: the nodes that are left after each stage.
        error: why the pod would not be scheduled; None if it would.
        cycle_state: always empty.
        gpu_scheduler_state: the cards of the nodes that take the pod.
        progressive_node_names: always None.
        warnings: the warnings that the creator of the pod would get, and the assumptions of the simulation.
        explanation: the evaluation of every node and card; None if admission refuses the pod.
    """

    schedule_result: ScheduleResult = ScheduleResult()
    filter_detail: FilterDetail = FilterDetail(())
    error: SimulationError | None = None
    cycle_state: dict[str, str] = {}
    gpu_scheduler_state: GpuSchedulerState = GpuSchedulerState()
    progressive_node_names: None = None
    warnings: tuple[str, ...] = ()
    explanation: Explanation | None = None
