"""The paths of the API for users with rights in one namespace, and of the API server's proxy to it.

The API server forwards requests to Services (`services/proxy`). It removes the `Authorization` header, which it has
used itself, so callers send the bearer token once more in the header `X-Tranche-Token`.
"""

from typing import Final

from allocation.names import SYSTEM_NAMESPACE

TOKEN_HEADER: Final = "X-Tranche-Token"  # noqa: S105 -- a header's name
SERVICE: Final = "tranche-scheduler"
PORT_NAME: Final = "api"
PROXY: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/services/https:{SERVICE}:{PORT_NAME}/proxy"
"""The path of the API server's proxy to the Service; one of the paths below follows it."""

POD_EXPLANATION: Final = "/api/namespaces/{namespace}/pods/{pod}/explanation"
ADJUSTMENT: Final = "/api/namespaces/{namespace}/pods/{pod}/adjustment"
CONSOLIDATION: Final = "/api/namespaces/{namespace}/pods/{pod}/consolidation"
MOST_MOVES: Final = "most-moves"
"""The parameter of a consolidation with the number of moves to which the caller has agreed."""
SIMULATION: Final = "/api/namespaces/{namespace}/simulation"
CAPACITY: Final = "/api/namespaces/{namespace}/capacity"
SHARES: Final = "/api/namespaces/{namespace}/shares"
USAGE: Final = "/api/namespaces/{namespace}/usage"
CLUSTER_USAGE: Final = "/api/usage"
QUEUES: Final = "/api/namespaces/{namespace}/queues"
GANGS: Final = "/api/namespaces/{namespace}/gangs"
VERSION: Final = "/version"
