"""Version 6: report numbers beyond a device's first gap are a bitmap."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = None  # schema.BASELINE


def upgrade() -> None:
    """Upgrade from version 5; a set with gaps stays a text until the next report of its device."""
    op.add_column("dedupe", sa.Column("beyond", sa.LargeBinary))
