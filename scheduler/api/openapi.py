"""The OpenAPI document of `scheduler.api.routes`, generated from the types of the responses.

`python -m scheduler.api.openapi > docs/openapi.yaml` writes the copy for readers; a test compares the two.
"""

import sys
from typing import Any, Final

import msgspec
import yaml

from allocation import limits
from cluster.resource import GPU_CLAIMS
from cluster.version import Version
from scheduler.api import assignment_document
from scheduler.api.adjustment_types import AdjustmentAnswer, AdjustmentQuestion
from scheduler.api.allocation_view import AllocationView
from scheduler.api.assignment_types import AssignedNumber, PodReference
from scheduler.api.capacity_types import CapacityView
from scheduler.api.consolidation_types import ConsolidationExplanation, ConsolidationProgress
from scheduler.api.explanation_types import Explanation
from scheduler.api.gang_types import GangsView
from scheduler.api.namespaced import paths
from scheduler.api.namespaced.paths import (
    ADJUSTMENT,
    CONSOLIDATION,
    POD_EXPLANATION,
    SHARES,
    SIMULATION,
    TOKEN_HEADER,
    VERSION,
)
from scheduler.api.namespaced.shares_types import NamespaceShares
from scheduler.api.queue_types import QueuesView
from scheduler.api.quota_types import QuotasView
from scheduler.api.request_body import YAML
from scheduler.api.responses import Failure
from scheduler.api.simulation_types import Simulation
from scheduler.api.usage_types import UsageView

OPENAPI: Final = "/openapi.json"
ALLOCATION: Final = "/api/allocation"
QUEUES: Final = "/api/queues"
QUOTAS: Final = "/api/quotas"
GANGS: Final = "/api/gangs"
CAPACITY: Final = "/api/capacity"
EXPLAIN: Final = "/api/explain/{namespace}/{pod}"
SIMULATE: Final = "/api/simulate-schedule"
ADJUST: Final = "/api/adjust"

_JSON: Final = "application/json"
_ABOUT: Final = f"""\
Shows what the scheduler decides, and why. Requests but that of a consolidation change nothing: they reserve no cards
and write nothing to the API server. The scheduler serves the API on its own port, 127.0.0.1:8444 by default. Beyond
loopback it requires TLS and a caller that the scheduler's settings allow, by client certificate or bearer token.

The paths below /api/namespaces are for users who have rights in one namespace. They, {paths.CLUSTER_USAGE} and /version
are on a separate port
(scheduler.namespace_api) with TLS, which the API server's proxy reaches through the Service tranche-scheduler. Callers
send a bearer token of the cluster in the header {TOKEN_HEADER}, or in Authorization if no proxy removes it. The
responses name no pods of other namespaces, and show whether a card takes the pod, but not how full the card is.
"""

_MANIFEST: Final = f"""\
The manifest of a Pod (v1), as a user would create it; or a List (v1) of one Pod and the claims that would be created
together with it: at most {limits.VOLUMES} PersistentVolumeClaims (v1), and the GpuClaim ({GPU_CLAIMS.api_version}) that
the pod names. A claim that exists in the cluster counts as it is there. The claims of generic ephemeral volumes need
not be sent.
"""


def document() -> dict[str, Any]:
    """Return the document, OpenAPI 3.1."""
    types = (
        *(Simulation, AllocationView, QueuesView, QuotasView, Explanation, NamespaceShares, Version, Failure),
        *(ConsolidationExplanation, ConsolidationProgress, GangsView, CapacityView),
        *(UsageView, AdjustmentQuestion, AdjustmentAnswer),
        *(PodReference, AssignedNumber),
    )
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    simulation, allocation, queues, quotas, explanation, shares, version, failure, *others = references
    moves, progress, gangs, capacity, usage, *adjustment, pod_reference, assigned = others
    common = {
        "401": _text("The request has neither a client certificate nor a bearer token."),
        "403": {
            "description": "The settings do not allow this caller, or they allow callers on loopback only.",
            "content": {"text/plain": {"schema": {"type": "string"}}, _JSON: {"schema": failure}},
        },
        "503": {
            "description": "This replica does not lead or is not ready, or the API server did not respond.",
            "content": {"text/plain": {"schema": {"type": "string"}}, _JSON: {"schema": failure}},
        },
    }
    manifest = {"schema": {"type": "object", "description": _MANIFEST}}
    node = _parameter(
        "node",
        "query",
        "Show the cards of this node; may be repeated. Default: all nodes; with over 500 nodes, the chosen one.",
        many=True,
    )
    namespaced = {
        "401": _json("The request has no bearer token, or the API server does not accept the token.", failure),
        "403": _json("The user lacks the required right in this namespace.", failure),
        "429": _json("Too many requests are in progress, in total or from this user.", failure),
        "503": _json("This replica does not lead or is not ready, or the API server did not respond.", failure),
    }
    namespace = _parameter("namespace", "path", "The namespace.")
    most_moves = _parameter("most-moves", "query", "Move no more pods than these. Default: as the settings say.")
    gang = (
        _parameter("name", "query", "Return the gangs of this name; with a namespace also the pods of the gang."),
        _parameter("after", "query", "Return the gangs after this one, namespace/name: `next` of another response."),
    )
    one_node = _parameter("node", "query", "Show the cards of this node. Default: no cards.")
    counts = {
        "200": _json("The counts, also if no pod fits or admission refuses them.", capacity),
        "501": _json("In extender mode the scheduler does not count pods.", failure),
    }
    counts_of_pod = {
        **counts,
        "400": _json("The body is not a Pod, or not a List of one Pod and valid claims.", failure),
        "413": _json("The body is larger than 256 KiB.", failure),
        "422": _json("Another scheduler would place the pod.", failure),
    }
    shapes_of = _parameter("namespace", "query", "The namespace of the pods that are counted. Default: default.")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tranche's scheduler", "version": "v1", "description": _ABOUT},
        "paths": {
            SIMULATE: {
                "post": {
                    "operationId": "simulateSchedule",
                    "summary": "Simulate the creation of a pod now.",
                    "parameters": [node],
                    "requestBody": {"required": True, "content": {_JSON: manifest, YAML: manifest}},
                    "responses": {
                        "200": _json("The decision, also if the pod would not be scheduled.", simulation),
                        "400": _json("The body is not a Pod, or not a List of one Pod and valid claims.", failure),
                        "413": _json("The body is larger than 256 KiB.", failure),
                        "500": _json("Another scheduler would place the pod.", failure),
                        **common,
                    },
                }
            },
            ADJUST: {"post": _adjust(adjustment, failure, common)},
            ADJUSTMENT: {"post": _adjust_own(adjustment, failure, namespaced, namespace)},
            **assignment_document.paths(pod_reference, assigned, failure, common=namespaced, json=_json),
            ALLOCATION: {
                "get": {
                    "operationId": "readAllocation",
                    "summary": "List all cards, and the pods that use them.",
                    "responses": {"200": _json("The allocation as four maps.", allocation), **common},
                }
            },
            QUEUES: {
                "get": {
                    "operationId": "readQueues",
                    "summary": "List the queues: what each has, is entitled to, and waits for.",
                    "responses": {"200": _json("The queues in the order in which they are served.", queues), **common},
                }
            },
            QUOTAS: {
                "get": {
                    "operationId": "readQuotas",
                    "summary": "List the quotas: what pods use of each limit, and what is left.",
                    "responses": {"200": _json("The quotas of all namespaces.", quotas), **common},
                }
            },
            GANGS: {
                "get": {
                    "operationId": "readGangs",
                    "summary": "List the gangs: how many of their pods have nodes, and why the others wait.",
                    "parameters": [_parameter("namespace", "query", "Return the gangs of this namespace."), *gang],
                    "responses": {"200": _json("At most 500 gangs, by namespace and name.", gangs), **common},
                }
            },
            CAPACITY: {
                "get": {
                    "operationId": "readCapacity",
                    "summary": "Count how many whole cards and common slices still fit, and what is stranded.",
                    "parameters": [shapes_of],
                    "responses": {**counts, **common},
                },
                "post": {
                    "operationId": "countPods",
                    "summary": "Count how many more pods like one still fit, and what is stranded.",
                    "parameters": [shapes_of],
                    "requestBody": {"required": True, "content": {_JSON: manifest, YAML: manifest}},
                    "responses": {**counts_of_pod, **common},
                },
            },
            EXPLAIN: {
                "get": {
                    "operationId": "explainPod",
                    "summary": "Explain why a pod runs on its node, or is pending.",
                    "parameters": [
                        _parameter("namespace", "path", "The pod's namespace."),
                        _parameter("pod", "path", "The pod's name."),
                        node,
                    ],
                    "responses": {
                        "200": _json("The node of the pod, and the evaluation of every node.", explanation),
                        "404": _json("The pod does not exist.", failure),
                        **common,
                    },
                }
            },
            POD_EXPLANATION: {
                "get": {
                    "operationId": "explainOwnPod",
                    "summary": "Explain a pod to users who may get pods in its namespace.",
                    "parameters": [namespace, _parameter("pod", "path", "The pod's name."), one_node],
                    "responses": {
                        "200": _json("The node of the pod, and why other nodes do not take it.", explanation),
                        "400": _json("The parameter node is repeated.", failure),
                        "404": _json("The pod does not exist.", failure),
                        **namespaced,
                    },
                }
            },
            SIMULATION: {
                "post": {
                    "operationId": "simulateOwnPod",
                    "summary": "Simulate the creation of a pod for users who may create pods in its namespace.",
                    "parameters": [namespace, one_node],
                    "requestBody": {"required": True, "content": {_JSON: manifest, YAML: manifest}},
                    "responses": {
                        "200": _json("The decision, also if the pod would not be scheduled.", simulation),
                        "400": _json(
                            "The body is not a Pod of this namespace, a claim is not valid, or node is repeated.",
                            failure,
                        ),
                        "413": _json("The body is larger than 256 KiB, in YAML 16 KiB.", failure),
                        "422": _json("Another scheduler would place the pod.", failure),
                        **namespaced,
                    },
                }
            },
            CONSOLIDATION: {
                "post": {
                    "operationId": "consolidate",
                    "summary": "Move pods to other nodes so that a pending pod fits, for users who may create"
                    " pods/eviction in all namespaces.",
                    "parameters": [namespace, _parameter("pod", "path", "The pending pod."), most_moves],
                    "responses": {
                        "200": _json("The moves that have begun, or why no pod is moved.", moves),
                        "400": _json("The parameter most-moves is not a number.", failure),
                        "404": _json("The pod does not exist.", failure),
                        **namespaced,
                    },
                },
                "get": {
                    "operationId": "readConsolidation",
                    "summary": "Return how far the moves for a pod are, to the same users.",
                    "parameters": [namespace, _parameter("pod", "path", "The pod for which others are moved.")],
                    "responses": {
                        "200": _json("The number of pods that have a node again, or how it ended.", progress),
                        "404": _json("The pod does not exist, or no pods are moved for it.", failure),
                        **namespaced,
                    },
                },
            },
            paths.CAPACITY: {
                "get": {
                    "operationId": "readOwnCapacity",
                    "summary": "Count whole cards and a namespace's common slices for users who may create pods in it.",
                    "parameters": [namespace],
                    "responses": {**counts, **namespaced},
                },
                "post": {
                    "operationId": "countOwnPods",
                    "summary": "Count how many more pods like one fit for users who may create pods in its namespace.",
                    "parameters": [namespace],
                    "requestBody": {"required": True, "content": {_JSON: manifest, YAML: manifest}},
                    "responses": {**counts_of_pod, **namespaced},
                },
            },
            SHARES: {
                "get": {
                    "operationId": "readOwnShares",
                    "summary": "List the cards of a namespace's pods for users who may list pods in it.",
                    "parameters": [namespace],
                    "responses": {
                        "200": _json("The nodes and cards with pods of the namespace.", shares),
                        **namespaced,
                    },
                }
            },
            paths.USAGE: {
                "get": {
                    "operationId": "readOwnUsage",
                    "summary": "Show what the pods of a namespace really use for users who may list pods in it.",
                    "parameters": [namespace],
                    "responses": {"200": _json("The last measurements.", usage), **namespaced},
                }
            },
            paths.CLUSTER_USAGE: {
                "get": {
                    "operationId": "readUsage",
                    "summary": "Show what all pods and cards really use for users who may list pods everywhere.",
                    "responses": {"200": _json("The last measurements.", usage), **namespaced},
                }
            },
            paths.QUEUES: {
                "get": {
                    "operationId": "readOwnQueues",
                    "summary": "List the queues that a namespace's pods may use for users who may list pods in it.",
                    "parameters": [namespace],
                    "responses": {
                        "200": _json("The queues; those without pods of the namespace have no numbers.", queues),
                        **namespaced,
                    },
                }
            },
            paths.GANGS: {
                "get": {
                    "operationId": "readOwnGangs",
                    "summary": "List the gangs of a namespace for users who may list pods in it.",
                    "parameters": [namespace, *gang],
                    "responses": {"200": _json("At most 500 gangs, by name.", gangs), **namespaced},
                }
            },
            VERSION: {
                "get": {
                    "operationId": "readVersion",
                    "summary": "Return the scheduler's version. Every replica responds, and no token is needed.",
                    "responses": {"200": _json("The version.", version)},
                }
            },
            OPENAPI: {
                "get": {
                    "operationId": "describe",
                    "summary": "This document.",
                    "responses": {"200": _json("OpenAPI 3.1.", {"type": "object"})},
                }
            },
        },
        "components": {"schemas": schemas},
    }


def _adjust(adjustment: list[Any], failure: Any, common: dict[str, Any]) -> dict[str, Any]:
    question, answer = adjustment
    return {
        "operationId": "adjust",
        "summary": "Answer whether a running pod may have another size. Nothing is changed.",
        "requestBody": {"required": True, "content": {_JSON: {"schema": question}}},
        "responses": {
            "200": _json("Whether it may, and what is left of its cards.", answer),
            "400": _json("The body is not a question of this form.", failure),
            "404": _json("The pod does not exist.", failure),
            "413": _json("The body is larger than 256 KiB.", failure),
            **common,
        },
    }


def _adjust_own(
    adjustment: list[Any], failure: Any, namespaced: dict[str, Any], namespace: dict[str, Any]
) -> dict[str, Any]:
    size = {"type": "object", "description": "By container, as in the annotation gpu.scheduling/resize."}
    return {
        "operationId": "adjustOwn",
        "summary": "Answer users who may get pods in a namespace whether one of them may have another size.",
        "parameters": [namespace, _parameter("pod", "path", "The pod's name.")],
        "requestBody": {"required": True, "content": {_JSON: {"schema": size}}},
        "responses": {
            "200": _json("Whether it may, and what is left of its cards. Nothing is changed.", adjustment[1]),
            "400": _json("The body is not of the form of the annotation.", failure),
            "404": _json("The pod does not exist.", failure),
            "413": _json("The body is larger than 256 KiB.", failure),
            **namespaced,
        },
    }


def text() -> str:
    """Return the document in YAML."""
    return str(yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=120))


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {_JSON: {"schema": schema}}}


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


def _parameter(name: str, place: str, description: str, *, many: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if many:
        schema = {"type": "array", "items": schema}
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


if __name__ == "__main__":
    sys.stdout.write(text())
