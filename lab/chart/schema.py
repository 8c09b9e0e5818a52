"""The JSON Schema of the chart's values. A key that it does not list is an error, so that no value is without effect.

The part for `config` follows from the settings of the processes, which reject unknown keys as well.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec

from agent.settings import AgentSettings
from allocation.settings import AllocationSettings, BindingsMode
from cluster.logs import LogSettings
from scheduler.settings import MissingDevicesPolicy, RigidBudgetsPolicy, SchedulerSettings
from webhook.settings import WebhookSettings

SECTIONS = {
    "log": LogSettings,
    "allocation": AllocationSettings,
    "webhook": WebhookSettings,
    "scheduler": SchedulerSettings,
    "agent": AgentSettings,
}
Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 1}
STRINGS: Schema = {"type": "array", "items": STRING}
LABELS: Schema = {"type": "object", "additionalProperties": STRING}
# Checked by the API server: fields of Kubernetes' own types.
OBJECT: Schema = {"type": "object"}
OBJECTS: Schema = {"type": "array", "items": OBJECT}
AMOUNT: Schema = {"type": ["integer", "string"]}

IMAGE: Schema = {
    "registry": {"type": ["string", "null"]},
    "repository": STRING,
    "tag": STRING,
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "pullPolicy": {"enum": ["", "Always", "IfNotPresent", "Never"]},
}


def closed(properties: Schema) -> Schema:
    """Return the schema of an object with these keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def text(*further: tuple[str, str, Schema]) -> str:
    """Return the content of values.schema.json.

    `further` are values that the chart has in addition: section, or an empty string for the top level, name and schema.
    """
    references, definitions = msgspec.json.schema_components(SECTIONS.values(), ref_template="#/$defs/{name}")
    sections = dict(zip(SECTIONS, references, strict=True))
    properties = _properties(closed(sections))
    for section, name, schema in further:
        (properties[section]["properties"] if section else properties)[name] = schema
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **closed(properties),
        "$defs": _bare(definitions),
    }
    return json.dumps(document, indent=1) + "\n"


def _properties(config: Schema) -> Schema:
    pods = {
        "image": closed(IMAGE),
        "resources": OBJECT,
        "nodeSelector": LABELS,
        "tolerations": OBJECTS,
        "priorityClassName": STRING,
        "podLabels": LABELS,
        "podAnnotations": LABELS,
    }
    replicated = {
        **pods,
        "replicas": COUNT,
        "affinity": OBJECT,
        "podDisruptionBudget": closed({"enabled": FLAG, "minAvailable": AMOUNT}),
    }
    monitored = {"enabled": FLAG, "labels": LABELS}
    return {
        "global": {"type": "object", "properties": {"imageRegistry": STRING, "imagePullSecrets": OBJECTS}},
        "image": closed({**IMAGE, "pullSecrets": OBJECTS}),
        "namespace": closed({"create": FLAG}),
        "crds": closed({"enabled": FLAG, "install": FLAG, "keep": FLAG}),
        "runtimeClassName": STRING,
        "clusterWide": FLAG,
        "gpuOperator": closed({"namespaces": STRINGS}),
        "config": config,
        "webhook": closed({**replicated, "excludeNamespaces": STRINGS, "completeTemplates": FLAG}),
        "scheduler": closed(replicated),
        "agent": closed({**pods, "extraEnv": OBJECTS}),
        "extender": closed({"enabled": FLAG, "image": closed(IMAGE), "resources": OBJECT}),
        "resourceClaims": closed({"enabled": FLAG, "image": closed(IMAGE), "resources": OBJECT}),
        "hamiNodes": closed({"enabled": FLAG, "pluginUser": STRING}),
        "bindings": closed({"mode": {"enum": [*get_args(BindingsMode)]}, "requireNamespace": FLAG, "writers": STRINGS}),
        "priorityQuota": FLAG,
        "gangs": closed({"podGroups": FLAG}),
        "resize": FLAG,
        "ui": closed({"enabled": FLAG, "exposed": FLAG}),
        "expander": closed({"enabled": FLAG}),
        "missingDevices": {"enum": [*get_args(MissingDevicesPolicy)]},
        "rigidBudgets": {"enum": [*get_args(RigidBudgetsPolicy)]},
        "dra": closed({"enabled": FLAG}),
        "draGuard": closed({"enabled": FLAG, "drivers": STRINGS, "namespaces": STRINGS}),
        "delivery": closed({"hostFacts": FLAG, "nvidiaNri": FLAG, "nri": FLAG, "devicePlugin": FLAG}),
        "isolation": closed({"hamiCore": FLAG, "mps": FLAG, "memoryLimits": FLAG}),
        "usage": closed({"hostPID": FLAG}),
        "certManager": closed({"enabled": FLAG}),
        "networkPolicy": closed({"enabled": FLAG, "metricsNamespace": STRING}),
        "monitoring": closed(
            {
                "podMonitor": closed({**monitored, "interval": STRING}),
                "serviceMonitor": closed({**monitored, "interval": STRING}),
                "prometheusRule": closed(monitored),
                "dashboard": closed(monitored),
            }
        ),
        "extraObjects": OBJECTS,
    }


def _bare(schema: Any) -> Any:
    """Return the schema without descriptions and defaults: the pages of docs/ have both."""
    if isinstance(schema, dict):
        # Below "properties" the keys are names of settings.
        return {
            key: {name: _bare(each) for name, each in value.items()} if key == "properties" else _bare(value)
            for key, value in schema.items()
            if key not in ("title", "description", "default")
        }
    return [_bare(each) for each in schema] if isinstance(schema, list) else schema
