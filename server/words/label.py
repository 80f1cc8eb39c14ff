"""A fleet's label in plain words: five questions of somebody who lives with a device, and their answers."""

import datetime
from collections.abc import Sequence

from ...device.ldp_client import Experiment
from .epsilon import belief
from .experiment import readings
from .numbers import chance, counted, length

ASKED, WHO, LEARN, LONG, STOP = QUESTIONS = (
    "What is asked?",
    "Who gets it?",
    "What can they learn about my home?",
    "For how long?",
    "How do I stop it?",
)

COUNTS = "the counts"
HIDDEN = (
    "The device hides each answer: it draws a code by chance, with odds that lean to the answer, and sends "
    "that code alone. The reading itself never leaves the device, and neither does a name, an account or a "
    "place."
)
SEEN = (
    "Whoever runs the server or carries the messages can see that this device takes part, the random number "
    "that it goes by, its network address, and when it sends. Hushmote keeps that number and how often it "
    "answered, but neither the address nor the time."
)
TOGETHER = (
    "What is true of many homes becomes known: that is the purpose. Several such devices in one home tell "
    "more than one does."
)
STOPPED = (
    "The device stops before its next answer, and drops those that it has not sent. What was counted before "
    "stays: nobody can tell which of the counts was yours."
)


def maker(text: str) -> str:
    """A place that only the maker of the device can fill in."""
    return f"[For the maker: {text}]"


def answer(experiment: Experiment, unit: str) -> str:
    """What an answer can be, for people who know no bins: "a number from -14 to 50 °C"."""
    if experiment.type == "number":
        return f"a number from {experiment.low / 1000:g} to {experiment.high / 1000:g} {unit}".rstrip()
    if experiment.type == "choice":
        return f"one of {readings(experiment, unit)}"
    return "a text" if experiment.type == "text" else readings(experiment, unit)


def asked(name: str, purpose: str, experiment: Experiment, unit: str, most: int) -> str:
    """What is asked, what is sent for it, and how often; most: answers in a device's life."""
    often = "once" if most == 1 else f"at most {most:,} times"
    code = f"hidden in one of {experiment.code_count:,} codes, {often} in the device's life"
    return f"“{purpose.rstrip()}” ({name}): {answer(experiment, unit)}, {code}."


def who(owners: Sequence[str], hosts: Sequence[str]) -> str:
    """Who asks, and how the answers travel, where that is known."""
    ask = "asks, and sees" if len(owners) == 1 else "ask, and see"
    travel = f" The answers travel encrypted to {', '.join(hosts)}." if hosts else ""
    return f"{', '.join(owners)} {ask} the counts of all devices together.{travel}"


def but(delta: float, told: str) -> str:
    """A sentence on a promise, with the chance before it at which the promise may fail."""
    return f"But for a chance of {chance(delta, up=True)}, {_lower(told)}" if delta else told


def learns(names: Sequence[str], epsilon: float) -> str:
    """What one answer to any of these tells whoever sees it; epsilon: nats."""
    return f"From one answer ({', '.join(names)}): {_lower(belief(epsilon, seen='it'))}"


def learns_of_all(today: Sequence[float], life: float, delta: float) -> list[str]:
    """What all answers of a device tell: to the questions of today, and to whatever else may be asked.

    today: ε of all answers to each question, nats. life, delta: the firmware's own limit, which bounds those
    as well.
    """
    limit = _lower(but(delta, belief(life, seen="all of them")))
    epsilon = sum(today)
    if not today or epsilon >= life:
        return [f"From all answers of the device's life together: {limit}"]
    return [
        f"From all its answers to what is asked today: {_lower(belief(epsilon, seen='all of them'))}",
        f"Whatever else is asked later, from all answers of the device's life together: {limit}",
    ]


def learns_of_counts(name: str, reports: int, epsilon: float | None, delta: float) -> str:
    """What the counts tell whoever sees nothing else; epsilon: nats, None where none holds."""
    if epsilon is None:
        return f"From the counts ({name}): no more than from the answers themselves."
    told = _lower(but(delta, belief(epsilon, seen="them")))
    return f"From the counts of {counted(reports, 'answer')} ({name}): {told}"


def keeping(seconds: float | None) -> str:
    """How long counts are kept; None: of one window that never ends, which nothing erases by itself."""
    if seconds is None:
        return f"until the owner erases them {maker('when that is')}"
    return f"for {length(seconds)}, then erased"


def kept(names: Sequence[str], until: datetime.date | None, now: bool, keep: str) -> str:
    """Until when these are asked, and how long their counts are kept, in the words of keeping()."""
    last = f"asked until {until}" if until else "asked until the owner ends it: no last day is set"
    are = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)} {are} {last if now else 'asked no more'}. The counts are kept {keep}."


def stop(button: bool | None) -> str:
    """Return how to stop a device; button: whether its firmware has one, None if that is unknown."""
    if button is None:
        return f"To stop it, say no at the device {maker('how: its button or switch')}."
    if button:
        return "To stop it, hold its button for 3 seconds."
    return "It has no button. To stop it, connect a computer to it and enter no() at its prompt."


def confirmed(light: bool | None) -> str:
    """Return how a device shows that it was stopped; light: as button of stop()."""
    shown = {True: "Three short flashes of its light. ", False: "", None: f"{maker('what it shows')} "}[light]
    return f"{shown}Its `status()` says that consent is no."


def consent(
    given: bool, because: str, network: bool, each: bool, button: bool | None, light: bool | None
) -> list[str]:
    """Return how a device comes to take part; the last sentences: how to stop it."""
    sentences = ["The device sends nothing until somebody at it says yes."]
    if given:
        sentences = [f"The device was set up with your yes: {because.rstrip('.')}."]
    if network:
        sentences.append("The owner may also start it over the network.")
    if each:
        sentences.append("Each question needs a yes of its own, and another one if it changes or tells more.")
    if each and button and light:
        sentences.append(
            "Holding its button while its light asks, by two short flashes, says yes to a new question."
        )
    return [*sentences, f"{stop(button)} {STOPPED}"]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
