"""HAMi's rules by number, as this house keeps them.

Sections are those of the maintainers' notes on HAMi v2.10.0 (1 is what goes over the wire, 2 is how it schedules); the
last part counts the rules of a section. `repaired` says that HAMi does otherwise and what it does is a defect: see
docs/hami-compatibility.md. Every rule is cited by a test in this folder, and no test is without one.
"""

from typing import Final

RULES: Final = {
    # ---- 1.1 what a node says ----------------------------------------------------------------------------------
    "1.1.1": "the register annotation is a JSON array, one object per card, zero values omitted",
    "1.1.2": "a reader fills what is omitted: index 0, NUMA node 0, mode hami-core, and not healthy",
    "1.1.3": "a reader ignores fields that it does not know",
    "1.1.4": "a type begins with NVIDIA: a model that does not gets it as a prefix",
    "1.1.5": "memory is MiB rounded down times the memory scaling, cores are 100 times the core scaling",
    "1.1.6": "older annotations of 7 or 9 fields between commas are read",
    "1.1.7": "repaired: cards stand by index, and equal inventories give equal text",
    "1.1.8": "the score annotation tells how well two cards are linked",
    "1.1.9": "an unknown NUMA node is 0",
    "1.1.10": "XIDs 13, 31, 43, 45, 68 and 109 say nothing of a card; others make it unhealthy; repaired: it heals",
    "1.1.11": "the cordon annotation lists UUIDs, spaces and empty items do not count; pods on them stay",
    # ---- 1.2 what a pod carries --------------------------------------------------------------------------------
    "1.2.1": "a placed pod has vgpu-node, vgpu-time and vgpu-devices-allocated",
    "1.2.2": "an allocation string: init containers first, `UUID,NVIDIA,MiB,percent:` per card, `;` per container",
    "1.2.3": "a reader skips what has no comma, ignores further fields, wants four, and keeps empty containers",
    "1.2.4": "repaired: every container has its place, with or without a GPU",
    "1.2.5": "a string with too few places is aligned from the end by who asked, and never counts as nothing",
    "1.2.6": "an entry without UUID is no device",
    "1.2.7": "slots are not on the wire: one for each container that shares the card",
    "1.2.8": "amounts are int32: others are refused, and their pod closes its node",
    # ---- 1.3 what a user may set -------------------------------------------------------------------------------
    "1.3.1": "use- and nouse-gpuuuid: exact, trimmed, an empty list constrains nothing, both apply",
    "1.3.2": "use- and nouse-gputype: a part of the model in any case",
    "1.3.3": "numa-bind is a Go boolean; repaired: what is none is refused",
    "1.3.4": "vgpu-mode: the card's mode stands somewhere in the value; repaired: a value without any mode is refused",
    "1.3.5": "node-scheduler-policy is binpack or spread; repaired: another word is refused",
    "1.3.6": "gpu-scheduler-policy is one of five words or several in order; repaired: another word is refused",
    "1.3.7": "device-scoring-weights are slot, core and memory, each once, none negative, one positive",
    "1.3.8": "constraints are the whole pod's",
    "1.3.9": "label hami.io/webhook: ignore leaves a pod alone",
    # ---- 1.4 what a container asks -----------------------------------------------------------------------------
    "1.4.1": "no count and nothing else: no GPU container",
    "1.4.2": "gpumem is a whole number times the memory factor within int32; repaired: anything else is refused",
    "1.4.3": "gpumem-percentage is 1 to 100; repaired: anything else is refused",
    "1.4.4": "neither: the default memory, else the whole card",
    "1.4.5": "cores as stated, else the default; repaired: beyond 100 is refused",
    "1.4.6": "gpumem wins over a percentage",
    "1.4.7": "limits are read before requests",
    "1.4.8": "the resource names are the administrator's choice",
    # ---- 1.5 what admission does -------------------------------------------------------------------------------
    "1.5.1": "what cannot be read is an error of its own, a pod without containers is refused",
    "1.5.2": "another scheduler's pod is left alone, the default scheduler's is taken over",
    "1.5.3": "a percentage out of range is refused",
    "1.5.4": "priority becomes CUDA_TASK_PRIORITY",
    "1.5.5": "a core policy other than default becomes GPU_CORE_UTILIZATION_POLICY; repaired: in GPU containers only",
    "1.5.6": "memory, percentage or cores without a count: the default count",
    "1.5.7": "a card asked whole gets cores 100",
    "1.5.8": "a configured runtimeClassName is set where none is",
    "1.5.9": "a container without GPU sees none",
    "1.5.10": "a privileged container beside a GPU is refused",
    "1.5.11": "a GPU pod gets our schedulerName; one with a node is refused",
    "1.5.12": "beyond the namespace's quota is refused",
    "1.5.13": "repaired: the answer changes what it names and leaves fields alone that it does not know",
    # ---- 1.6 quotas --------------------------------------------------------------------------------------------
    "1.6.1": "limits.nvidia.com/gpumem and gpucores, and ours: gpu, over all shares of a namespace's pods",
    "1.6.2": "at admission: the larger of app containers together and each init step, times the cards, percentages 0",
    "1.6.3": "at placement: the pod's containers add up with memory resolved on the card, else ResourceQuotaNotFit",
    "1.6.4": "a limit of 0 blocks",
    "1.6.5": "repaired: several quotas combine by minimum, and deleting one leaves the others",
    "1.6.6": "the memory factor counts in limits as in requests",
    # ---- 1.7 what a container is told --------------------------------------------------------------------------
    "1.7.1": "NVIDIA_VISIBLE_DEVICES is its cards' UUIDs",
    "1.7.2": "CUDA_DEVICE_MEMORY_LIMIT_i is MiB with suffix m, i in the container's order; without index the fallback",
    "1.7.3": "CUDA_DEVICE_SM_LIMIT is percent; 0 means no limit",
    "1.7.4": "a missing allocation leaves CUDA_VISIBLE_DEVICES empty, which hides every GPU",
    "1.7.5": "CUDA_DISABLE_CONTROL and the core policy are no user's to set; what else the limiter reads is left alone",
    # ---- 2.1 the flow ------------------------------------------------------------------------------------------
    "2.1.1": "a pod without request is none of the ledger's affair",
    "2.1.2": "init containers stand each beside none but sidecars, app containers add up; the pod holds the maximum",
    "2.1.3": "repaired: the share does not shrink when init containers are done",
    "2.1.4": "repaired: a sidecar counts beside everything that follows it",
    "2.1.5": "a terminating pod keeps its share until it is finished or gone",
    "2.1.6": "repaired: check and reserve are one step: two decisions never take the same room",
    # ---- 2.2 does a card fit? ----------------------------------------------------------------------------------
    # 2.2.14, MIG, stands with the other rules of MIG.
    "2.2.0": "more cards than the node has: NodeInsufficientDevice for the node as a whole",
    "2.2.1": "not healthy: CardNotHealth",
    "2.2.2": "cordoned: CardCordoned",
    "2.2.3": "wrong model or mode: CardTypeMismatch",
    "2.2.4": "numa-bind and no NUMA node with enough: NumaNotFit",
    "2.2.5": "wrong UUID: CardUuidMismatch",
    "2.2.6": "no slot left: CardTimeSlicingExhausted",
    "2.2.7": "mutex and in use: ExclusiveDeviceAllocateConflict",
    "2.2.8": "memory is gpumem, or the percentage of the card, rounded down",
    "2.2.9": "beyond the quota: ResourceQuotaNotFit",
    "2.2.10": "too little memory: CardInsufficientMemory",
    "2.2.11": "too little compute: CardInsufficientCore",
    "2.2.12": "whole compute asked of a card in use: ExclusiveDeviceAllocateConflict",
    "2.2.13": "no compute left and none asked: CardComputeUnitsExhausted",
    "2.2.15": "too few cards fit: those that do say AllocatedCardsInsufficientRequest",
    "2.2.16": "one container never gets a card twice; containers of a pod may share one",
    "2.2.17": "topology-aware: one card is the worst linked, several are the best linked subset",
    "2.2.18": "the first failing test is the reason, in this order",
    # ---- 2.3 which is better? ----------------------------------------------------------------------------------
    "2.3.1": "a card's score is ten times its weighted fullness; repaired: the request included",
    "2.3.2": "binpack takes the fullest card, spread the emptiest; spread is the default",
    "2.3.3": "numa takes NUMA nodes in order, mutex idle cards, a list applies in its order",
    "2.3.4": "a node's score is the fullness of all its cards; binpack takes the fullest node and is the default",
    "2.3.5": "repaired: ties are broken by free memory and index, nodes by name",
    # ---- 2.5 what people read ----------------------------------------------------------------------------------
    "2.5.1": "FilteringSucceed: find fit node(n), x nodes not fit, y nodes fit(a:score); repaired: at most ten named",
    "2.5.2": "FilteringFailed: nodes by reason, `no available node, k nodes do not meet`",
    "2.5.3": "a node's reasons are `c/n Reason`, by name, and sum to its cards",
}
