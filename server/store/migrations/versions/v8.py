"""Version 8: how long an experiment's windows are kept, and the records that remain of erased devices."""

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Upgrade from version 7; windows are kept forever unless an experiment's file says otherwise."""
    op.add_column("experiment", sa.Column("keep", sa.Text, nullable=False, server_default=""))
    op.add_column("experiment", sa.Column("erased", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "erased",
        sa.Column("mark", sa.String(32), primary_key=True),
        sa.Column("fleet", sa.String(32), nullable=False),
        sa.Column("experiment", sa.String(32), nullable=False),
        sa.Column("highest", sa.BigInteger, nullable=False),
        sa.Column("reports", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
