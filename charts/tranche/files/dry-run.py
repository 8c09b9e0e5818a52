"""Create a GPU pod in a dry run, and check that admission prepared it. `helm test` runs this in Tranche's image."""

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "tranche-test-", "labels": {"gpu.scheduling/injection": "enabled"}},
    "spec": {
        "containers": [
            {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}}}
        ]
    },
}

token = (ACCOUNT / "token").read_text(encoding="utf-8")
host = f"[{HOST}]" if ":" in HOST else HOST
request = urllib.request.Request(
    f"https://{host}:{PORT}/api/v1/namespaces/default/pods?dryRun=All",
    data=json.dumps(POD).encode(),
    headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
)
try:
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ACCOUNT / "ca.crt")) as response:
        pod = json.load(response)
except urllib.error.HTTPError as error:
    sys.exit(f"the API server refused a GPU pod: {json.load(error)['message']}")
scheduler = pod["spec"].get("schedulerName")
if scheduler != "tranche":
    sys.exit(f"a GPU pod is left to scheduler {scheduler!r}: no webhook of Tranche saw it")
print("a GPU pod is admitted, prepared, and routed to scheduler tranche")
