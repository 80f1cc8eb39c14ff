"""A view's terms, explained at the end of the page with the documentation's glossary."""

from nicegui import ui

from .frame import tag

# Copied verbatim from docs/glossary.md; a test compares them.
WORDS = {
    "ε (epsilon)": (
        "The strength of the promise. No report is more than e^ε times as likely under one reading as "
        "under another. A smaller ε is more private and less accurate. ε is measured in nats."
    ),
    "What an ε means": (
        "With ε = 2, one report can raise someone's confidence in a guess about the reading from 10% to "
        "at most 46%. With ε = 1 the limit is 24%, with ε = 0.5 it is 16%."
    ),
    "ε of a report": (
        "A bound on what a report reveals about its device to anyone, including the broker, the aggregator "
        "and a thief. It is charged to the device's budget."
    ),
    "ε of the histogram": (
        "A bound on what the histogram, and every answer computed from it, reveal about one device. It is "
        "far smaller when many devices report, because the other reports hide each one. It protects against "
        "someone who sees histograms only, but not against the broker, the aggregator's operator or the "
        "database's journal."
    ),
    "δ (delta)": (
        "A small number that a promise allows in addition to ε: an event may be more likely by δ than e^ε "
        "times its probability under another reading."
    ),
    "Histogram": (
        "How many times each code arrived in one window, counted separately for each value of an open "
        "group. The server stores nothing else about readings, and no column links a device to a code."
    ),
    "Local differential privacy (LDP)": (
        "Differential privacy in which the person's own device adds the randomness, before anything "
        "leaves it. Nobody needs to be trusted with readings."
    ),
}


def words(*names: str) -> None:
    """Add a list that explains these terms."""
    with ui.element("dl").classes("words"):
        for name in names:
            tag("dt", name).props(f"id={place(name)}")
            tag("dd", WORDS[name])


def word(name: str) -> None:
    """Add a term as a link to its explanation on the page."""
    ui.link(name, f"#{place(name)}")


def place(name: str) -> str:
    """Return the id of a term's explanation on the page."""
    return "word-" + "".join(c if c.isalnum() else "-" for c in name.lower())
