"""Start every broker of docs/survives.md, run the same tests on each, and write the results into the table.

    python tools/make_brokers.py [TITLE ...]

TITLE: only brokers whose title contains it. The others keep their columns, as do those that are not
installed.
"""

import sys

import _paths  # noqa: F401
from broker_table import COLUMNS, columns_of_page, write_page


def main() -> None:
    cells = columns_of_page()
    for column in COLUMNS:
        if sys.argv[1:] and not any(title in column.title for title in sys.argv[1:]):
            continue
        if lacks := column.lacks():
            print(f"{column.title}: {lacks}")
            continue
        cells[column.title] = column.facts()
        print(f"{column.title}: done", flush=True)
    write_page({column.title: cells[column.title] for column in COLUMNS if column.title in cells})


if __name__ == "__main__":
    main()
