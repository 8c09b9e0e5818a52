"""The answer of `/api/simulate-schedule`: TensorFusion's keys (systems.md 4.14), and our explanation beside them."""

from typing import Literal

import msgspec

from scheduler.explanation_api import Explanation


class ScheduleResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Where the pod would go; all zero where nowhere."""

    suggested_host: str = ""
    evaluated_nodes: int = 0
    feasible_nodes: int = 0


class FilterStage(msgspec.Struct, frozen=True, rename="pascal"):
    """The nodes before and after one stage of the decision, and those that it took away, by name."""

    filter_name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    diff: tuple[str, ...]


class FilterDetail(msgspec.Struct, frozen=True, rename="pascal"):
    """The stages in their order."""

    filter_stage_details: tuple[FilterStage, ...]


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Why one node does not take the pod."""

    code: Literal["Unschedulable", "UnschedulableAndUnresolvable"]
    plugin: str
    reasons: tuple[str, ...]
    message: str


class NodeToStatus(msgspec.Struct, frozen=True, rename="camel"):
    """By node; a node without an entry takes the pod."""

    nodes: dict[str, NodeStatus]
    absent_nodes_status: None = None


class Diagnosis(msgspec.Struct, frozen=True, rename="camel"):
    """Why no node takes the pod."""

    unschedulable_plugins: tuple[str, ...]
    node_to_status: NodeToStatus
    pre_filter_msg: str = ""
    post_filter_msg: str = ""
    pending_plugins: tuple[str, ...] = ()


class SimulationError(msgspec.Struct, frozen=True, rename="camel"):
    """Why the pod would not be placed.

    Attributes:
        type: `NotAdmitted`, it could not be created; `Held`, nothing but another spec helps; `FitError`, no node takes
            it now; only that has the other members.
    """

    type: Literal["NotAdmitted", "Held", "FitError"]
    message: str
    num_all_nodes: int | msgspec.UnsetType = msgspec.UNSET
    diagnosis: Diagnosis | msgspec.UnsetType = msgspec.UNSET


class GpuSchedulerState(msgspec.Struct, frozen=True):
    """Cards by their UUIDs: of the nodes that take the pod, with scores of those that fit and of those that do not."""

    node_gpus: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict, name="NodeGPUs")
    valid: dict[str, dict[str, float]] = msgspec.field(default_factory=dict, name="ValidNodeGPUScore")
    not_matching: dict[str, dict[str, float]] = msgspec.field(default_factory=dict, name="ValidNodeNotMatchingGPUScore")
    final_gpus: tuple[str, ...] = msgspec.field(default=(), name="FinalGPUs")


class Simulation(msgspec.Struct, frozen=True, rename="camel"):
    """What the loop would do with the pod.

    Attributes:
        schedule_result: where it would go.
        filter_detail: which nodes were left after each stage.
        error: why it would not be placed; None where it would.
        cycle_state: always empty.
        gpu_scheduler_state: cards.
        progressive_node_names: always None.
        warnings: what the creator of the pod would be told, and what is taken for granted here.
        explanation: every node and card; None for a pod that could not be created.
    """

    schedule_result: ScheduleResult = ScheduleResult()
    filter_detail: FilterDetail = FilterDetail(())
    error: SimulationError | None = None
    cycle_state: dict[str, str] = {}
    gpu_scheduler_state: GpuSchedulerState = GpuSchedulerState()
    progressive_node_names: None = None
    warnings: tuple[str, ...] = ()
    explanation: Explanation | None = None
