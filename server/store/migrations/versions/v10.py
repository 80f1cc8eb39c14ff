"""Version 10: a version of an experiment may have been signed elsewhere."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """From version 9; an aggregator with the signing key signs what has no signatures, as before."""
    op.add_column("experiment", sa.Column("signatures", sa.LargeBinary(128)))
