"""Version 6: store report numbers beyond a device's first gap as a bitmap."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = None  # schema.BASELINE


def upgrade() -> None:
    """Upgrade from version 5; a set with gaps remains text until its device's next report."""
    op.add_column("dedupe", sa.Column("beyond", sa.LargeBinary))
