"""Version 2: devices that are allowed or revoked, and fleets where only the allowed ones count."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """From version 1: no fleet is listed, no device is revoked."""
    op.add_column("fleet", sa.Column("listed", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "device",
        sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), primary_key=True),
        sa.Column("device", sa.String(32), primary_key=True),
        sa.Column(
            "state", sa.String(8), sa.CheckConstraint("state IN ('allowed', 'revoked')"), nullable=False
        ),
        sqlite_with_rowid=False,
    )
