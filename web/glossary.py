"""The terms of a view, each explained at the end of the page as in the documents' glossary."""

from nicegui import ui

from .frame import heading, tag

# Copied from docs/glossary.md verbatim: a test compares them.
WORDS = {
    "ε (epsilon)": (
        "The size of the promise. No report is more than e^ε times as likely under one reading as under "
        "another. Small ε is more private and less exact. ε is in nats."
    ),
    "What an ε means": (
        "With ε = 2, one report can raise someone's confidence in a guess about the reading from 10% to at "
        "most 46%. With ε = 1 it is 24%, with ε = 0.5 it is 16%."
    ),
    "ε of a report": (
        "What a report says of its device, to anybody: the broker, the aggregator, a thief. The device's "
        "budget counts it."
    ),
    "ε of the histogram": (
        "What the histogram, and every answer made of it, says of one device. It is far smaller where many "
        "devices report, because the others' reports hide this one's. It holds against whoever sees "
        "histograms only; not against the broker, the aggregator's operator or the database's journal."
    ),
    "δ (delta)": (
        "A small number that a promise allows beside ε: an event may be likelier by δ than e^ε times its "
        "chance."
    ),
    "Histogram": ("How often each code came, in one window. It is what the server stores."),
    "Local differential privacy (LDP)": (
        "Differential privacy where the person's own device adds the chance, before anything leaves it. "
        "Nobody has to be trusted with readings."
    ),
}


def words(*names: str) -> None:
    """Add a section that explains these terms."""
    heading("Glossary", 2)
    with ui.element("dl").classes("words"):
        for name in names:
            tag("dt", name).props(f"id={place(name)}")
            tag("dd", WORDS[name])


def word(name: str) -> None:
    """Return a term as a link to its explanation on the page."""
    ui.link(name, f"#{place(name)}")


def place(name: str) -> str:
    """Return the id of a term on the page."""
    return "word-" + "".join(c if c.isalnum() else "-" for c in name.lower())
