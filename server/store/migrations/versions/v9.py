"""Version 9: when counting was last known to work, and the days on which it was interrupted."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """From version 8; nothing is known of the days before the upgrade, so none of them is interrupted."""
    counting = op.create_table("counting", sa.Column("alive", sa.BigInteger))
    op.bulk_insert(counting, [{"alive": None}])
    op.create_table(
        "interruption", sa.Column("day", sa.String(10), primary_key=True), sqlite_with_rowid=False
    )
