"""`hushmote mechanisms`: the mechanisms, their uses and when "auto" picks them."""

from .options import AsJson, print_json


def mechanisms_command(as_json: AsJson = False) -> None:
    """List the mechanisms: what each is for and when "auto" picks it.

    An experiment's file names its mechanism; "auto" picks the one with the least error for its question.
    """
    from ..server.answers import tables as show
    from ..server.mechanisms import MECHANISMS
    from ..server.mechanisms.about import about  # imported lazily because NumPy slows --help down

    rows = []
    for mechanism in dict.fromkeys(MECHANISMS.values()):
        words = [word for word, other in MECHANISMS.items() if other is mechanism]
        description = about(mechanism)
        rows.append({"mechanisms": words, "use": description.what, "auto": description.auto})
    if as_json:
        print_json(rows)
        return
    table = show.table("", ("mechanism", "use", "auto picks it for"), range(3))
    for row in rows:
        table.add_row(", ".join(row["mechanisms"]), row["use"], row["auto"])
    show.out.print(table)
