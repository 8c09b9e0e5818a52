"""The part of the OpenAPI document about `scheduler.api.assignment_routes`."""

from collections.abc import Callable
from typing import Any, Final

ASSIGN_INDEX: Final = "/api/assign-index"
ASSIGN_HOST_PORT: Final = "/api/assign-host-port"

Part = dict[str, Any]


def paths(pod: Part, assigned: Part, failure: Part, *, common: Part, json: Callable[[str, Part], Part]) -> Part:
    """Return the paths; `pod`, `assigned` and `failure` are schemas, `common` the responses of all such paths.

    `json` returns a response of a description and a schema.
    """
    refused = {
        "404": json("The pod does not exist or has ended, or scheduler.assignments is off.", failure),
        "409": json("Live pods have all numbers, or the pod's annotation has one that is not its own.", failure),
        **common,
    }
    index = {
        "operationId": "assignIndex",
        "summary": "Assign an index that no other live pod has, for users who may patch pods in the pod's namespace.",
        "parameters": [_parameter("namespace"), _parameter("pod")],
        "responses": {
            "200": json("The pod's index, the same each time.", assigned),
            "400": json("The pod is not named.", failure),
            **refused,
        },
    }
    port = {
        "operationId": "assignHostPort",
        "summary": "Assign a host port that no other live pod has, for the same users.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": pod}}},
        "responses": {
            "200": json("The pod's port, the same each time.", assigned),
            "400": json("The body does not name a pod.", failure),
            "413": json("The body is larger than 4 KiB.", failure),
            **refused,
        },
    }
    return {ASSIGN_INDEX: {"get": index}, ASSIGN_HOST_PORT: {"post": port}}


def _parameter(name: str) -> Part:
    about = "The pod's namespace." if name == "namespace" else "The pod's name."
    return {"name": name, "in": "query", "required": True, "description": about, "schema": {"type": "string"}}
