"""Version 10: the time by which clocks are judged, besides that at which counting last worked."""

import sqlalchemy as sa
from alembic import op

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """From version 9; until an experiment is added, only the time at which counting last worked judges."""
    op.add_column("counting", sa.Column("clock", sa.BigInteger))
