"""`kubectl gpu preflight`: what would change before a cluster switches to Tranche. Reads only."""

import argparse

from allocation.settings import AllocationSettings
from cli import settings
from cli.migration import reading, report
from cli.migration.survey import Rules
from cli.session import Session
from cli.tables import structured
from webhook.settings import WebhookSettings


def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print what was found; answer 1 where something is to be done first."""
    rules = _rules(arguments)
    namespace = "" if arguments.all_namespaces else arguments.namespace
    survey = reading.read(session.client, rules, namespace=namespace)
    found = report.judge(survey, rules)
    text = structured(found, output=arguments.output)
    print(found.text(headers=not arguments.no_headers) if text is None else text, end="")
    return 0 if found.is_clear else 1


def _rules(arguments: argparse.Namespace) -> Rules:
    extender = arguments.mode == "extender"
    if not arguments.config:
        return Rules(AllocationSettings(), WebhookSettings(), extender)
    told = settings.whole(arguments.config, prog="kubectl gpu preflight")
    return Rules(told.allocation, told.own, extender)
