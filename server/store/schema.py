"""The store's tables, one schema for SQLite and PostgreSQL.

No column links a device to a code, a value, an address or a time: `dedupe` knows devices and numbers,
`histogram` codes and windows, and nothing joins them. Every version of this schema is a step in `migrations`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

VERSION = 2

metadata = MetaData()

schema_version = Table("schema_version", metadata, Column("version", Integer, nullable=False))

fleet = Table(
    "fleet",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("keyed", Boolean, nullable=False),  # false: open, anyone can forge
    Column("listed", Boolean, nullable=False, server_default=false()),  # true: it has an allow-list
)

# Devices that were named by hand: allowed, which is the fleet's allow-list, or revoked, for good.
# Without a row id, which would keep the order in which they were named.
device = Table(
    "device",
    metadata,
    Column("fleet", String(32), ForeignKey("fleet.name"), primary_key=True),
    Column("device", String(32), primary_key=True),
    Column("state", String(8), CheckConstraint("state IN ('allowed', 'revoked')"), nullable=False),
    sqlite_with_rowid=False,
)

# A version of an experiment is immutable. `current` marks the one that is published: one of a name or none.
experiment = Table(
    "experiment",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("fleet", String(32), ForeignKey("fleet.name"), nullable=False),
    Column("name", String(32), nullable=False),
    Column("digest", LargeBinary(4), nullable=False),
    Column("sha256", LargeBinary(32), nullable=False),
    Column("payload", LargeBinary(1024), nullable=False),
    Column("current", Boolean, nullable=False),
    Column("expires", String(10)),  # last day on which it is published, UTC: 2027-12-31; null: for good
    UniqueConstraint("fleet", "digest"),
)

histogram = Table(
    "histogram",
    metadata,
    Column("experiment", Integer, ForeignKey("experiment.id"), primary_key=True, autoincrement=False),
    Column("window", String(13), primary_key=True),  # of arrival, UTC: 2026-11-21T14, 2026-11-21, all
    Column("code", Integer, primary_key=True, autoincrement=False),
    Column("count", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Without a row id, which would keep the order in which devices were first heard of.
dedupe = Table(
    "dedupe",
    metadata,
    Column("fleet", String(32), primary_key=True),
    Column("experiment", String(32), primary_key=True),
    Column("device", String(32), primary_key=True),
    Column("numbers", Text, nullable=False),
    Column("accepted", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

reject = Table(
    "reject",
    metadata,
    Column("fleet", String(32), primary_key=True),  # empty where the fleet is not known
    Column("reason", String(32), primary_key=True),
    Column("count", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
