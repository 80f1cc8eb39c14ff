"""The store's tables, one schema for SQLite and PostgreSQL.

No column links a device to a code, a group, a value, an address or a time: `dedupe` has devices and numbers,
`histogram` has codes, groups and windows, and nothing joins them; `erased` has none of these. `counting`,
`interruption` and `rewrite` describe the whole store. Every version of this schema has a script in
`migrations`.
"""

import sqlalchemy as sa
from sqlalchemy import event

VERSION = 14
BASELINE = 5
"""The oldest version that can be upgraded; earlier ones were never released."""

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

fleet = sa.Table(
    "fleet",
    metadata,
    sa.Column("name", sa.String(32), primary_key=True),
    sa.Column("keyed", sa.Boolean, nullable=False),  # false: an open fleet, in which anyone can forge reports
    sa.Column("listed", sa.Boolean, nullable=False, server_default=sa.false()),  # true: it has an allow-list
    sa.Column("serial", sa.BigInteger, nullable=False, server_default="0"),  # the highest of any version
    sa.Column(
        "master_check", sa.String(16)
    ),  # check value of its master key, see wire.keys; null: no key has been used yet
    sa.Column("comparisons", sa.Integer, nullable=False, server_default="0"),  # most that alerts have made
)

# Devices named by an operator: allowed (on the fleet's allow-list) or permanently revoked.
# There is no row id, because it would reveal the order in which they were named.
device = sa.Table(
    "device",
    metadata,
    sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), primary_key=True),
    sa.Column("device", sa.String(32), primary_key=True),
    sa.Column("state", sa.String(8), sa.CheckConstraint("state IN ('allowed', 'revoked')"), nullable=False),
    sqlite_with_rowid=False,
)

# A version of an experiment is immutable. `current` marks the published one, at most one per name. Serials
# are unix times, or the fleet's last serial plus one if that is larger, and define the order. `signatures`
# are those of its announcement and its withdrawal if they were made elsewhere. unit, purpose, owner, asked,
# keep, worse, day and week are the analyst's texts, which devices never see and which may change.
experiment = sa.Table(
    "experiment",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), nullable=False),
    sa.Column("name", sa.String(32), nullable=False),
    sa.Column("digest", sa.LargeBinary(4), nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    sa.Column("payload", sa.LargeBinary(1024), nullable=False),
    sa.Column("current", sa.Boolean, nullable=False),
    sa.Column("expires", sa.String(10)),  # last day on which it is published, UTC: 2027-12-31; null: no end
    sa.Column(
        "first_serial", sa.BigInteger, nullable=False, server_default="0"
    ),  # when it was first published
    sa.Column("serial", sa.BigInteger, nullable=False, server_default="0"),  # when it was last published
    sa.Column("counted_until", sa.String(10)),  # last day on which its reports count, UTC; null: no end
    sa.Column("unit", sa.Text, nullable=False, server_default=""),
    sa.Column("purpose", sa.Text, nullable=False, server_default=""),
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("asked", sa.Text, nullable=False, server_default=""),  # the finding's questions, one per line
    sa.Column("keep", sa.Text, nullable=False, server_default=""),  # how long its windows are kept: 400d, 48h
    sa.Column(
        "erased", sa.BigInteger, nullable=False, server_default="0"
    ),  # number of reports in erased windows
    sa.Column("signatures", sa.LargeBinary(128)),
    sa.Column("worse", sa.Text, nullable=False, server_default=""),  # by how much a release may be worse
    sa.Column("day", sa.Text, nullable=False, server_default=""),  # time zone of its days; empty: UTC
    sa.Column("week", sa.Text, nullable=False, server_default=""),  # first day of its weeks; empty: Monday
    sa.UniqueConstraint("fleet", "digest"),
)

histogram = sa.Table(
    "histogram",
    metadata,
    sa.Column(
        "experiment", sa.Integer, sa.ForeignKey("experiment.id"), primary_key=True, autoincrement=False
    ),
    sa.Column(
        "window", sa.String(13), primary_key=True
    ),  # window of arrival, UTC: 2026-11-21T14, 2026-11-21, all
    sa.Column(
        "group_index", sa.Integer, primary_key=True, autoincrement=False
    ),  # of the open group's value, which the report named in the clear; 0 for a version without a group
    sa.Column("code", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# There is no row id, because it would reveal the order in which devices first reported. In PostgreSQL the
# table is partitioned by device: the device is in its key, and every statement specifies the device or reads
# all rows, so the partitions can be on several servers. numbers and beyond are a NumberSet; beyond is null if
# there is no gap.
DEDUPE_PARTS = 16
dedupe = sa.Table(
    "dedupe",
    metadata,
    sa.Column("fleet", sa.String(32), primary_key=True),
    sa.Column("experiment", sa.String(32), primary_key=True),
    sa.Column("device", sa.String(32), primary_key=True),
    sa.Column("numbers", sa.Text, nullable=False),
    sa.Column("accepted", sa.BigInteger, nullable=False),
    sa.Column("beyond", sa.LargeBinary),
    sqlite_with_rowid=False,
)


@event.listens_for(dedupe, "before_create")
def _partition(table: sa.Table, connection: sa.Connection, **_: object) -> None:
    # Set lazily because it loads the dialect, which SQLite stores do not need.
    if connection.dialect.name == "postgresql":
        table.dialect_kwargs["postgresql_partition_by"] = "HASH (device)"


for _part in range(DEDUPE_PARTS):
    _ddl = f"PARTITION OF dedupe FOR VALUES WITH (MODULUS {DEDUPE_PARTS}, REMAINDER {_part})"
    event.listen(
        dedupe, "after_create", sa.DDL(f"CREATE TABLE dedupe_{_part} {_ddl}").execute_if(dialect="postgresql")
    )

reject = sa.Table(
    "reject",
    metadata,
    sa.Column("fleet", sa.String(32), primary_key=True),  # empty if the fleet is unknown
    sa.Column("reason", sa.String(32), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# The records that remain of an erased device, one for each experiment name that it had reported to. The mark
# is a keyed hash whose key is not in the store; see `erase`. Numbers up to the highest never count again.
erased = sa.Table(
    "erased",
    metadata,
    sa.Column("mark", sa.String(32), primary_key=True),
    sa.Column("fleet", sa.String(32), nullable=False),
    sa.Column("experiment", sa.String(32), nullable=False),  # empty: revoked, so none of its reports count
    sa.Column("highest", sa.BigInteger, nullable=False),
    sa.Column("reports", sa.BigInteger, nullable=False),  # counted, and still in the histogram
    sqlite_with_rowid=False,
)

# One row with two times, unix seconds in whole minutes. alive: when counting last worked; null if it has not
# counted yet. clock: when an experiment was last added or withdrawn, or an operator last accepted a clock. A
# clock that is behind the later of the two must be wrong.
counting = sa.Table(
    "counting", metadata, sa.Column("alive", sa.BigInteger), sa.Column("clock", sa.BigInteger)
)

# Days, UTC, on which counting was down for more than an hour or a backlog arrived, such as 2026-11-21.
interruption = sa.Table(
    "interruption", metadata, sa.Column("day", sa.String(10), primary_key=True), sqlite_with_rowid=False
)

# Devices for an aggregator to erase, which also deletes their rows in this table.
erasure = sa.Table(
    "erasure",
    metadata,
    sa.Column("fleet", sa.String(32), primary_key=True),
    sa.Column("device", sa.String(32), primary_key=True),
    sqlite_with_rowid=False,
)

# One row: the number of erasures so far, and for how many of them the database's files were rewritten.
rewrite = sa.Table(
    "rewrite",
    metadata,
    sa.Column("erasures", sa.BigInteger, nullable=False),
    sa.Column("rewritten", sa.BigInteger, nullable=False),
)

# The plan by which a release is judged at every look, such as a new firmware version. It is stored at the
# first look and never changes, because a verdict at any time holds only for a plan made beforehand.
release_plan = sa.Table(
    "release_plan",
    metadata,
    sa.Column("fleet", sa.String(32), sa.ForeignKey("fleet.name"), primary_key=True),
    sa.Column("group_name", sa.String(32), primary_key=True),  # of the open group: firmware
    sa.Column("version", sa.String(32), primary_key=True),  # the group's value that is judged: 2.4.0
    sa.Column("plan", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

# The events that people are told about, so that each is sent once, however often an aggregator restarts and
# however many there are. Events of one subject, such as a question, are numbered from 1.
alert = sa.Table(
    "alert",
    metadata,
    sa.Column("subject", sa.String(64), primary_key=True),  # a hash
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column(
        "kind", sa.String(16), nullable=False
    ),  # change, release, silence, budget, certificate, clock, start
    sa.Column("direction", sa.String(16), nullable=False),  # up, down; stop, proceed; begin, end; or empty
    sa.Column("fleet", sa.String(32), nullable=False),  # empty: about the whole store
    sa.Column("experiment", sa.String(32), nullable=False),  # empty: about the whole fleet
    sa.Column("first_day", sa.String(10), nullable=False),  # of the days on which it may have happened
    sa.Column("last_day", sa.String(10), nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),  # when it was noticed, unix seconds
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sqlite_with_rowid=False,
)

# An alert on its way to one receiver. Whoever sends it claims it first, until a time after which another may.
alert_delivery = sa.Table(
    "alert_delivery",
    metadata,
    sa.Column("subject", sa.String(64), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("receiver", sa.String(16), primary_key=True),  # a hash of its address without passwords
    sa.Column("fleet", sa.String(32), nullable=False),
    sa.Column("experiment", sa.String(32), nullable=False),
    sa.Column("state", sa.String(8), nullable=False),  # waiting, sent, given up
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", sa.BigInteger, nullable=False),  # the next attempt, or the end of a claim; unix seconds
    sa.Column("sent_at", sa.BigInteger),
    sqlite_with_rowid=False,
)

# The log of questions; see server.log. Rows of these three tables are never changed or deleted.
log_entry = sa.Table(
    "log_entry",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),  # 0, 1, 2, ... without gaps
    sa.Column("key", sa.String(128), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),  # when it was added, unix seconds
)

# A signed tree head for each size at which entries were added, with the log's own signatures.
log_checkpoint = sa.Table(
    "log_checkpoint",
    metadata,
    sa.Column("size", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("note", sa.Text, nullable=False),
)

# Witnesses' signature lines under checkpoints; the first of each key under each.
log_cosignature = sa.Table(
    "log_cosignature",
    metadata,
    sa.Column(
        "size",
        sa.BigInteger,
        sa.ForeignKey("log_checkpoint.size"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column("line", sa.Text, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),  # when it arrived, unix seconds
)
