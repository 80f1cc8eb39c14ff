"""Version 7: add the questions that an experiment's finding answers to its description."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Upgrade from version 6; an experiment without questions gets the default finding for its kind."""
    op.add_column("experiment", sa.Column("asked", sa.Text, nullable=False, server_default=""))
