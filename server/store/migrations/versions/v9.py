"""Version 9: the time at which counting last worked, and the days on which it was interrupted."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """Upgrade from version 8; earlier days are not marked as interrupted because nothing is known."""
    counting = op.create_table("counting", sa.Column("alive", sa.BigInteger))
    op.bulk_insert(counting, [{"alive": None}])
    op.create_table(
        "interruption", sa.Column("day", sa.String(10), primary_key=True), sqlite_with_rowid=False
    )
