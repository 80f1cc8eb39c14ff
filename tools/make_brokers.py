"""Start every broker in docs/survives.md, run the same tests on each, and write the results to the table.

    python tools/make_brokers.py [TITLE ...]

TITLE restricts the run to brokers whose title contains it. The others, and brokers that are not installed,
keep their columns.
"""

import sys

import _paths  # noqa: F401
from broker_table import COLUMNS, columns_of_page, write_page


def main() -> None:
    cells = columns_of_page()
    for column in COLUMNS:
        if sys.argv[1:] and not any(title in column.title for title in sys.argv[1:]):
            continue
        if missing := column.missing():
            print(f"{column.title}: {missing}")
            continue
        cells[column.title] = column.facts()
        print(f"{column.title}: done", flush=True)
    write_page({column.title: cells[column.title] for column in COLUMNS if column.title in cells})


if __name__ == "__main__":
    main()
