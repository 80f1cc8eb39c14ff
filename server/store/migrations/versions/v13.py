"""Version 13: the events that people are told about, and how many comparisons share their allowance."""

import sqlalchemy as sa
from alembic import op

revision = "13"
down_revision = "12"


def upgrade() -> None:
    """Upgrade from version 12; nothing has been sent yet."""
    op.add_column("fleet", sa.Column("comparisons", sa.Integer, nullable=False, server_default="0"))
    op.create_table(
        "alert",
        sa.Column("subject", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(16), nullable=False),
        sa.Column("fleet", sa.String(32), nullable=False),
        sa.Column("experiment", sa.String(32), nullable=False),
        sa.Column("first_day", sa.String(10), nullable=False),
        sa.Column("last_day", sa.String(10), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "alert_delivery",
        sa.Column("subject", sa.String(64), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("receiver", sa.String(16), primary_key=True),
        sa.Column("fleet", sa.String(32), nullable=False),
        sa.Column("experiment", sa.String(32), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.BigInteger, nullable=False),
        sa.Column("sent_at", sa.BigInteger),
        sqlite_with_rowid=False,
    )
