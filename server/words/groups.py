"""Describe an open group: the boards that send a value, and why a value is not shown."""

from ..hints import option
from ..wire.experiments import OTHER


def boards_with(name: str, value: str) -> str:
    """Describe the boards that send a value: "boards with firmware 2.4.0"; "" if no value is given.

    Args:
        name: The group's name.
        value: The value, or "other" for the boards with a value that the experiment does not list.
    """
    if not value:
        return ""
    return f"boards with another {name}" if value == OTHER else f"boards with {name} {value}"


def fewer_than(reports: int) -> str:
    """Describe the number of reports of a value with too few of them."""
    return f"fewer than {reports} reports"


NEXT_SMALLEST = "not shown, as the next smallest"
"""Shown instead of the number of reports of a value that is suppressed although it has enough."""


def suppression_note(needed: int) -> str:
    """Explain why some values are not shown; `needed` is the number of reports that a value needs."""
    return (
        f"A value with {fewer_than(needed)} is not shown, and neither is the next smallest: subtracting the "
        "others from all reports would reveal it."
    )


def version_refusal(name: str, needed: int, *, chosen: bool) -> str:
    """Say in one line why no value is shown for only some versions of the experiment.

    Args:
        name: The group's name.
        needed: The number of reports that a value needs.
        chosen: Whether the reader chose the version.
    """
    advice = f"omit {option('version')}" if chosen else "ask for a period after the question changed"
    return (
        f"answers by {name} of a single version cannot be shown in this period: some version has "
        f"{fewer_than(needed)} from one {name}, and the other answers would reveal them; "
        f"{advice}"
    )


def refusal(name: str, value: str, needed: int, *, has_enough: bool) -> str:
    """Say in one line why a value is not shown, and what to do about it.

    Args:
        name: The group's name.
        value: The value.
        needed: The number of reports that a value needs.
        has_enough: Whether the value itself has enough reports.
    """
    longer = f"ask for a longer period, such as {option('last', '28d')}"
    if has_enough:
        reason = f"subtracting them from all boards would reveal another {name} with {fewer_than(needed)}"
        return f"{boards_with(name, value)} cannot be shown in this period: {reason}; {longer}"
    return (
        f"{boards_with(name, value)} sent {fewer_than(needed)} in this period; {needed} are needed: {longer}"
    )
