"""The list of verbs: every verb, and what it does. `poolrl --help` prints it. A verb's file is imported on its call."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from poolrl.certificate.release_files import CONFIG

# In the order in which they are used. The file of a verb is cli/<verb>.py, or FILES says; its command is <verb>_verb.
VERBS = {
    "init": "Write poolrl.toml: everything that must be public, declared by you and never read off the log.",
    "check": "Check whether the table is as the configuration says. For the data holder's eyes; not for release.",
    "plan": "Predict what each budget buys, before any data is touched: by simulation, reading no row of the log.",
    "fit": "Spend rho, once: write the policy, its certificate, the leaflet, the deployment record and the page.",
    "update": "Add a later period to a release: pay rho for its weeks alone, plan again, and say what changed.",
    "replan": "Plan a release again with other costs or lower bounds: no log, no ledger, nothing spent.",
    "decide": "Give the order-up-to levels for given stocks: one on the command line, or many from a file.",
    "backtest": "Replay a release on later weeks of the log, beside what shops did. For the data holder's eyes.",
    "report": "Draw the page of a release again, from its policy and its certificate alone.",
    "verify": "Check a certificate: hashes, arithmetic, and agreement with the policy and the ledger.",
    "ledger": "What was ever spent on a data set, and the owner's keys: show, verify, budget, key, rotate-key.",
    "demo": "Write the example, and check, plan and fit it: what privacy costs, and what comes of it, in one go.",
    "reproduce": "Reproduce the paper's evaluation, with an honest verdict on each of its claims.",
    "audit": "Attack poolrl's own releases: is the privacy loss really no larger than claimed?",
}
# Verbs that stand in the file of another.
FILES = {"update": "fit", "replan": "fit", "report": "fit", "backtest": "check", "verify": "ledger", "demo": "init"}
CONFIG_NAME = Path(CONFIG)
ConfigPath = Annotated[Path, Parameter(help="The configuration.")]
OwnConfig = Annotated[Path | None, Parameter(help="For a problem of your own: the configuration that names it.")]
AuditFile = Annotated[Path | None, Parameter(help="audit.json of 'poolrl audit --config', for the certificate.")]
AsJson = Annotated[bool, Parameter(name="--json", help="For programs: JSON on standard output.")]


def verb(examples: str, name: str | None = None) -> App:
    """A command, with examples and more words below its flags. It has the name of its function, if no other."""
    return App(name=name, help_epilogue=f"Examples:\n{examples}", default_parameter=Parameter(negative=""))
