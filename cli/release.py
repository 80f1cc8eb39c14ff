"""`hushmote release`: judge whether a new version is worse than others, and show its rollout."""

from typing import Annotated

import typer

from .options import DEFAULT_STORE, AsJson, FleetName, StoreUrl, print_json


def release_command(  # noqa: PLR0913 - one for each option
    version: Annotated[str, typer.Argument(help="The new version, a value of the experiments' open group.")],
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VERSION",
            help="The version to compare it with; may be repeated. Later calls may omit it.",
        ),
    ] = None,
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    group: Annotated[
        str, typer.Option(help="Name of the open group, such as firmware; required if several list it.")
    ] = "",
    installed: Annotated[
        str | None,
        typer.Option(
            metavar="N/ALL|FILE|URL",
            help="Devices with the new version and all devices, to detect boards that never report: "
            '1200/20000, or a file or http(s) address with this or {"2.4.0": 1200, "2.3.1": 18800}.',
        ),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            help="Days to plan for, from the new version's first report; default: 14.", min=1, max=1000
        ),
    ] = None,
    reports: Annotated[
        int | None,
        typer.Option(
            help="Reports of the new version to plan for; default: as many as proceed needs, or without "
            "worse_by as come in these days at the present rate.",
            min=1,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(help="Probability of a false stop, and of a false proceed; default: 0.05."),
    ] = None,
    not_randomized: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help='How boards were chosen, if not at random, such as "by region"; the output then says so.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a release is worse than the version before: stop, proceed or not yet.

    The exit status is 0 for proceed, 3 for stop and 4 for not yet. The first call stores the plan, and later
    calls cannot change it, so the verdict stays valid however often anyone looks.
    """
    # Imported lazily so that usage errors are fast.
    from ..server.answers.query import Facts
    from ..server.answers.releases.first_plan import PlanRequest
    from ..server.answers.releases.installed import read_installed
    from ..server.answers.releases.judge import judge
    from ..server.store.store import Store
    from .options import choose_fleet

    devices = None if installed is None else read_installed(installed)
    request = PlanRequest(version, tuple(against or ()), days, reports, alpha, not_randomized)
    with Store(store, create=False) as opened:
        name = choose_fleet(opened, fleet)
        result = judge(Facts(opened), name, request, opened.add_release_plan, group=group, installed=devices)
        if as_json:
            print_json(result.to_dict())
        else:
            from ..server.answers import tables

            tables.out.print(result)
    raise typer.Exit(result.exit_status)
