"""Version 5: in PostgreSQL the dedupe table is divided by device; in SQLite nothing changes."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"

_PARTS = 16


def upgrade() -> None:
    """From version 4. The copy needs room for the table once more, and as much in the log."""
    if op.get_bind().dialect.name != "postgresql":
        return
    op.rename_table("dedupe", "dedupe_v4")
    op.execute("ALTER INDEX dedupe_pkey RENAME TO dedupe_v4_pkey")
    op.create_table(
        "dedupe",
        sa.Column("fleet", sa.String(32), primary_key=True),
        sa.Column("experiment", sa.String(32), primary_key=True),
        sa.Column("device", sa.String(32), primary_key=True),
        sa.Column("numbers", sa.Text, nullable=False),
        sa.Column("accepted", sa.BigInteger, nullable=False),
        postgresql_partition_by="HASH (device)",
    )
    for part in range(_PARTS):
        where = f"MODULUS {_PARTS}, REMAINDER {part}"
        op.execute(f"CREATE TABLE dedupe_{part} PARTITION OF dedupe FOR VALUES WITH ({where})")
        # A statement for each part: of a large store none may take as long as a statement is waited for.
        # Sorted, so that the index is filled in its order and nothing is left of the order of arrival.
        op.execute(
            f"INSERT INTO dedupe_{part} SELECT fleet, experiment, device, numbers, accepted FROM dedupe_v4 "
            f"WHERE satisfies_hash_partition('dedupe'::regclass, {_PARTS}, {part}, device) "
            "ORDER BY fleet, experiment, device"
        )
    op.drop_table("dedupe_v4")
