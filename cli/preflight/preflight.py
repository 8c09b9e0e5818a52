"""`kubectl gpu preflight`: what a switch to Tranche would change, and what to do first. Reads only."""

import argparse

import msgspec

from cli.installation import rules
from cli.kube.session import Session
from cli.preflight import reader, report
from cli.tables import structured


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print the report; return 1 if a finding blocks the switch."""
    effective_rules = rules.read(arguments.config, session.client)
    effective_rules.note_gaps()
    if arguments.mode:
        effective_rules = msgspec.structs.replace(effective_rules, extender=arguments.mode == "extender")
    namespace = "" if arguments.all_namespaces else arguments.namespace
    snapshot = reader.read(session.client, effective_rules, namespace=namespace)
    result = report.evaluate(snapshot, effective_rules)
    text = structured(result, output=arguments.output)
    print(result.text(headers=not arguments.no_headers) if text is None else text, end="")
    return 0 if result.is_clear else 1
