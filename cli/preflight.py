"""`kubectl gpu preflight`: what would change before a cluster switches to Tranche. Reads only."""

import argparse

from allocation.settings import AllocationSettings
from cli.migration import reading, report
from cli.migration.report import Report
from cli.migration.survey import Rules
from cli.session import Session
from cli.tables import structured
from cluster import configuration
from webhook.settings import WebhookSettings


async def run(session: Session, arguments: argparse.Namespace) -> int:
    """Print what was found; answer 1 where something is to be done first."""
    rules = _rules(arguments)
    namespace = "" if arguments.all_namespaces else arguments.namespace
    survey = await reading.read(session.api, rules, namespace=namespace)
    found: Report = report.judge(survey, rules)
    text = structured(found, output=arguments.output)
    print(found.text() if text is None else text, end="")
    return 0 if found.is_clear else 1


def _rules(arguments: argparse.Namespace) -> Rules:
    extender = arguments.mode == "extender"
    if not arguments.config:
        return Rules(AllocationSettings(), WebhookSettings(), extender)
    told = configuration.load(
        ["--config", arguments.config],
        section="webhook",
        settings=WebhookSettings,
        prog="kubectl gpu preflight",
        description="",
    )
    return Rules(told.allocation, told.own, extender)
