"""Simulate a planned fleet on the readings that the plan is based on."""

from dataclasses import dataclass
from typing import Any

from ...planning.proposal import Proposal
from ...server.answers import tables
from ...server.experiments.definition import parse
from ...simulator.simulate import SimulatedEstimate, simulate
from ..progress import progress
from ..simulate.run import select_answers, show, to_dict


@dataclass(frozen=True)
class Trial:
    """The result of the simulated fleet."""

    estimate: SimulatedEstimate

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return to_dict(self.estimate, select_answers(self.estimate))

    def print(self) -> None:
        """Print the result below the plan."""
        tables.out.print("simulated on these readings", style="bold")
        show(self.estimate, select_answers(self.estimate), None, privacy=False, verbose=False)
        tables.out.print()


def try_plan(file_text: str, proposal: Proposal) -> Trial:
    """Simulate the fleet that an experiment file's text describes, with the readings of its proposal."""
    with progress("simulating", 1.0) as advance:
        return Trial(simulate(parse(file_text), readings=proposal.readings, advance=advance))
