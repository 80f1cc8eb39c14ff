"""Mechanisms as tables of 80 columns, and as plain values for JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...planning.listing import ASKED, Listed, Listing, half_width
from ...server.answers import tables as show
from ...server.epsilon import MICRO
from .. import tables

_HEADINGS = ("mechanism", "error", "codes", "bytes", "draws", "decoding")
_BELOW = (
    "error: half-width of the 95 % interval, in points; of the mean, in % of the readings' range. bytes: of a"
    " report in a keyed fleet. draws: a board's random numbers for a report. decoding: from a histogram to"
    " all answers, measured here."
)


def plain(listing: Listing, devices: int) -> dict[str, Any]:
    """A listing as plain values."""
    return {
        "for": listing.asked,
        "what": ASKED[listing.asked],
        "values": listing.domain,
        "auto": listing.auto.word,
        "why": listing.why,
        "mechanisms": [_own(one, devices) for one in listing.listed],
        "peers": [
            {
                "name": peer.name,
                **_errors(listing.peer_variance(peer), devices),
                "bits": peer.bits(listing.domain, listing.epsilon / MICRO),
                **{name: getattr(peer, name) for name in ("board", "server", "citation", "missing")},
            }
            for peer in listing.peers
        ],
    }


def _own(one: Listed, devices: int) -> dict[str, Any]:
    said = asdict(one.about)
    return {
        **one.mechanism.fields(),
        **_errors(one.variance, devices),
        "codes": one.codes,
        "report_bytes": one.report_bytes,
        "draws": one.draws,
        "decode_seconds": one.decode_seconds,
        "about": said.pop("what"),
        **said,
    }


def _errors(variance: float, devices: int) -> dict[str, float | None]:
    if not math.isfinite(variance):
        return dict.fromkeys(("half_width_95", "standard_deviation", "variance_times_reports"))
    return {
        "half_width_95": half_width(variance, devices),
        "standard_deviation": math.sqrt(variance / devices),
        "variance_times_reports": variance,
    }


def all_questions(listings: Sequence[Listing], besides: Mapping[str, str], devices: int) -> None:
    """Print a table for each question, and what else there is: words with what each is."""
    show.out.print(_setting(listings[0], devices))
    for listing in listings:
        show.out.print()
        _print_listed(listing, devices)
    show.out.print()
    for word, what in besides.items():
        show.out.print(f"Also here: {word}. {what}")
    show.out.print()
    show.out.print(_BELOW)
    show.out.print("With --for: what each is, where it was published, and what the field has besides.")


def question(listing: Listing, devices: int) -> None:
    """Print the mechanisms for a question, what they are, and those that are not here."""
    show.out.print(_setting(listing, devices))
    show.out.print()
    _print_listed(listing, devices)
    show.out.print()
    show.out.print(_BELOW)
    for one in listing.listed:
        show.out.print()
        show.out.print(one.word, style="bold")
        said = one.about
        for name, text in (("", said.what), ("Citation: ", said.citation)):
            if text:
                show.out.print(f"{name}{text}")
    if not listing.peers:
        return
    show.out.print()
    made = tables.table(
        "Not here; errors by the papers' formulas", ("peer", "error", "bits"), 1, no_wrap=True
    )
    made.add_column("why not")
    for peer in listing.peers:
        bits = peer.bits(listing.domain, listing.epsilon / MICRO)
        error = points(half_width(listing.peer_variance(peer), devices))
        made.add_row(peer.name, error, f"{math.ceil(bits):,}", peer.missing)
    show.out.print(made)


def _print_listed(listing: Listing, devices: int) -> None:
    made = tables.table(listing.title, _HEADINGS, 1, no_wrap=True)
    for one in listing.listed:
        made.add_row(
            one.mechanism.words(),
            points(half_width(one.variance, devices)),
            f"{one.codes:,}",
            str(one.report_bytes),
            str(one.draws),
            _seconds(one.decode_seconds),
        )
    show.out.print(made)
    show.out.print(listing.why)


def _setting(listing: Listing, devices: int) -> str:
    return f"ε = {listing.epsilon / MICRO:g}, {devices:,} devices, one report each"


def points(error: float) -> str:
    """A half-width in points, or in percent of the readings' range, with three digits; or a dash."""
    return f"±{100 * error:.3g}" if math.isfinite(error) else "–"


def _seconds(seconds: float) -> str:
    if seconds >= 0.95:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds > 0.001 else f"{1000 * seconds:.1f} ms"
