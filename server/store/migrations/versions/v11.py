"""Version 11: counts by open group, the plans of releases, and by how much a release may be worse."""

import sqlalchemy as sa
from alembic import op

revision = "11"
down_revision = "10"

_KEY = ["experiment", "window", "group_index", "code"]


def upgrade() -> None:
    """Upgrade from version 10; no experiment had a group yet, so every count gets index 0."""
    op.add_column("experiment", sa.Column("worse", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "release_plan",
        sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), primary_key=True),
        sa.Column("group_name", sa.String(32), primary_key=True),
        sa.Column("version", sa.String(32), primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_histogram()
    else:  # in place, so that the table keeps its privileges
        op.add_column("histogram", sa.Column("group_index", sa.Integer, nullable=False, server_default="0"))
        op.alter_column("histogram", "group_index", server_default=None)
        op.drop_constraint("histogram_pkey", "histogram")
        op.create_primary_key("histogram_pkey", "histogram", _KEY)


def _rebuild_histogram() -> None:
    """Copy the counts to a new table, because SQLite cannot change a table's primary key."""
    op.rename_table("histogram", "histogram_10")
    op.create_table(
        "histogram",
        sa.Column(
            "experiment", sa.Integer, sa.ForeignKey("experiment.id"), primary_key=True, autoincrement=False
        ),
        sa.Column("window", sa.String(13), primary_key=True),
        sa.Column("group_index", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("code", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("count", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    columns = 'experiment, "window", {}, code, count'
    op.execute(
        f"INSERT INTO histogram ({columns.format('group_index')}) SELECT {columns.format('0')} "
        f'FROM histogram_10 ORDER BY experiment, "window", code'
    )
    op.drop_table("histogram_10")
