"""The OpenAPI document of `scheduler.inquiry_routes`, made from the very types of the answers.

`python -m scheduler.openapi > docs/openapi.yaml` writes the copy for readers; a test holds it against this.
"""

import sys
from typing import Any, Final

import msgspec
import yaml

from scheduler.allocation_view import AllocationView
from scheduler.explanation_api import Explanation
from scheduler.simulation_api import Simulation

OPENAPI: Final = "/openapi.json"
ALLOCATION: Final = "/api/allocation"
EXPLAIN: Final = "/api/explain/{namespace}/{pod}"
SIMULATE: Final = "/api/simulate-schedule"

_JSON: Final = "application/json"
_ABOUT: Final = """\
What the scheduler decides and why, for people and tools. Asking changes nothing: nothing is reserved, and nothing is
written to the API server. It is served where the scheduler serves (127.0.0.1:8444 unless configured). Elsewhere than on
loopback it wants TLS and a caller whom the scheduler's settings name, by client certificate or bearer token.
"""


class Failure(msgspec.Struct, frozen=True):
    """Why there is no answer."""

    error: str


def document() -> dict[str, Any]:
    """Answer the document, OpenAPI 3.1."""
    types = (Simulation, AllocationView, Explanation, Failure)
    references, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    simulation, allocation, explanation, failure = references
    common = {
        "401": _text("No client certificate and no bearer token came with it."),
        "403": {
            "description": "This caller may not ask, or nobody may from elsewhere than loopback.",
            "content": {"text/plain": {"schema": {"type": "string"}}, _JSON: {"schema": failure}},
        },
        "503": {
            "description": "This replica does not decide now, or a token cannot be reviewed now.",
            "content": {"text/plain": {"schema": {"type": "string"}}, _JSON: {"schema": failure}},
        },
    }
    manifest = {"schema": {"type": "object", "description": "A Pod of v1, as its creator writes it."}}
    node = _parameter(
        "node",
        "query",
        "Tell the cards of this node; may be repeated. Without it all, or, of over 500 nodes, those of the chosen one.",
        many=True,
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tranche's scheduler", "version": "v1", "description": _ABOUT},
        "paths": {
            SIMULATE: {
                "post": {
                    "operationId": "simulateSchedule",
                    "summary": "What would become of a pod that was created now.",
                    "parameters": [node],
                    "requestBody": {"required": True, "content": {_JSON: manifest, "application/yaml": manifest}},
                    "responses": {
                        "200": _json("What the loop would do, also where that is nothing.", simulation),
                        "400": _json("The body is no Pod.", failure),
                        "413": _json("The body is larger than any pod.", failure),
                        "500": _json("The pod would be another scheduler's.", failure),
                        **common,
                    },
                }
            },
            ALLOCATION: {
                "get": {
                    "operationId": "readAllocation",
                    "summary": "Who has what.",
                    "responses": {"200": _json("Four maps that say the same from four sides.", allocation), **common},
                }
            },
            EXPLAIN: {
                "get": {
                    "operationId": "explainPod",
                    "summary": "Why a pod is where it is, or waits.",
                    "parameters": [
                        _parameter("namespace", "path", "The pod's namespace."),
                        _parameter("pod", "path", "Its name."),
                        node,
                    ],
                    "responses": {
                        "200": _json("Where it is or would go, and what every node says of it.", explanation),
                        "404": _json("There is no such pod.", failure),
                        **common,
                    },
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


def text() -> str:
    """Answer the document in YAML."""
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
