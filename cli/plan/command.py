"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from ..options import command
from .options import PlanOptions


def _plan(options: PlanOptions) -> None:
    """Plan an experiment: devices, ε, error, and how to spend a lifetime budget.

    Give three of devices, ε, values and error to get the fourth. With --lifetime, --horizon and --call
    instead of --epsilon it says how to spend a lifetime budget, and what a day, a week and 30 days of the
    fleet will show. Without options it prints worked examples.
    """
    from .run import run  # only here: a mistake in the line waits for nothing of it

    run(options)


plan_command = command(PlanOptions, _plan)
