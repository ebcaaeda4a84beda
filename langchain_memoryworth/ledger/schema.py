"""The tables, and the migrations that lead to them. One schema for SQLite and Postgres.

`memories` holds one row per version of a text: evidence belongs to the text, so a changed text is a new row under the
same id, and the old one is retired. `evidence` is narrow and apart, because it is what outcomes write. `outcomes` and
`actions` are append-only. `changes` is the cursor by which other processes follow.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    text,
)

metadata = MetaData()
# Compared byte by byte, as SQLite does; an index in the order of a language would be of no use to `id > :low`.
_Text = Text().with_variant(Text(collation="C"), "postgresql")
_Key = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER PRIMARY KEY is SQLite's rowid


COUNTERS = ("positive", "negative", "size", "squared", "retrievals", "surprise")
"""The columns of `evidence.Evidence`, in its order."""


def _counter(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


meta = Table(
    "meta", metadata, Column("key", _Text, primary_key=True), Column("value", _Text, nullable=False)
)

policies = Table(
    "policies",
    metadata,
    Column("version", _Key, primary_key=True),
    Column("document", _Text, nullable=False),
    Column("at", Double, nullable=False),
)

memories = Table(
    "memories",
    metadata,
    Column("seq", _Key, primary_key=True),
    Column("namespace", _Text, nullable=False),
    Column("id", _Text, nullable=False),
    Column("text", _Text, nullable=False),
    Column("metadata", _Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("added_at", Double, nullable=False),
    # When it was last stored, which is what a time to live counts from, and an end of its own, if it has one.
    Column("written_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("retired_at", Double),
    Index("memories_id", "id", "namespace"),
    Index("memories_namespace", "namespace"),
)

# How many memories a namespace has, see populations.py.
populations = Table(
    "populations",
    metadata,
    Column("namespace", _Text, primary_key=True),
    *(_counter(n) for n in ("live", "suppressed")),
    sqlite_with_rowid=False,
)

evidence = Table(
    "evidence",
    metadata,
    Column("seq", _Key, primary_key=True, autoincrement=False),
    Column("status", _Text, nullable=False, server_default=text("'active'")),
    Column("epoch", Integer, nullable=False, server_default=text("0")),
    *(_counter(n) for n in COUNTERS),
    # What stood at the last restore: only what came after it can suppress again.
    *(_counter(f"base_{n}") for n in COUNTERS),
    # Probability with which it is left out of prompts, while it is in a trial.
    Column("hold_out", Double),
    # How many draws part it from its habitual companions, 1 or 2, see pairs.py.
    Column("parting", SmallInteger),
)

episodes = Table(
    "episodes",
    metadata,
    Column("eid", _Key, primary_key=True),
    Column("id", _Text, nullable=False, unique=True),
    Column("thread_id", _Text),
    Column("started_at", Double, nullable=False),
    Column("settled_at", Double),
    Column("reward", Double),
    # The tools that it called, see paths.py; NULL if none is known of.
    Column("path", _Text),
)

aliases = Table(
    "aliases",
    metadata,
    Column("alias", _Text, primary_key=True),
    Column("eid", BigInteger, nullable=False),
    Index("aliases_eid", "eid"),
    sqlite_with_rowid=False,
)

exposures = Table(
    "exposures",
    metadata,
    Column("eid", BigInteger, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("rank", Integer, nullable=False),
    Column("similarity", Double),
    Column("context", _Text),
    Column("arm", _Text, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("shown", SmallInteger, nullable=False),
    Column("used", SmallInteger),
    Column("at", Double, nullable=False),
    # When it was shown last, if more than once; credit may be discounted by it, see Policy.credit_half_life.
    Column("last_at", Double),
    *(_counter(n) for n in ("weight", "positive", "size", "surprise")),
    # The success that was to be expected without the memory when the credit was first given; NULL while it never was.
    Column("expected", Double),
    # The restore count of the memory when the credit was first given; NULL while it never was.
    Column("epoch", Integer),
    # The number of the episode's first outcome at that time: the order that the change detector follows.
    Column("heard", BigInteger),
    sqlite_with_rowid=False,
)

# The change detector of a memory, derived from the rest: see regimes.py.
regimes = Table(
    "regimes",
    metadata,
    Column("seq", _Key, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),
    Column("upto", BigInteger, nullable=False),
    Column("outcomes", Integer, nullable=False),
)

# Its earlier states, from which a correction replays it.
regime_anchors = Table(
    "regime_anchors",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("upto", BigInteger, primary_key=True, autoincrement=False),
    Column("outcomes", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# From which state it is replayed where older runs were rolled up; of another restore count it does not hold.
regime_openings = Table(
    "regime_openings",
    metadata,
    Column("seq", _Key, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("upto", BigInteger, nullable=False),
)

# The part of a memory's evidence that comes from one context; what has none is only in `evidence`.
strata = Table(
    "strata",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("context", _Text, primary_key=True),
    *(_counter(n) for n in COUNTERS),
    sqlite_with_rowid=False,
)

# Settled episodes by namespace and context, spread over a few rows each, and the sum of their rewards; what was rolled up
# is in a row of its own.
rates = Table(
    "rates",
    metadata,
    Column("namespace", _Text, primary_key=True),
    Column("context", _Text, primary_key=True),
    Column("shard", SmallInteger, primary_key=True, autoincrement=False),
    *(_counter(n) for n in ("episodes", "reward")),
    Column("recent", Double, nullable=False, server_default=text("0")),
    Column("recent_reward", Double, nullable=False, server_default=text("0")),
    sqlite_with_rowid=False,
)

# What is left of the credit of episodes that were rolled up: one row by memory, context, source and restore count. A source
# that spoke in one of them without deciding has a row of zeros. Counters are these and the exposures together.
openings = Table(
    "openings",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("context", _Text, primary_key=True),
    Column("source", _Text, primary_key=True),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    *(_counter(n) for n in COUNTERS),
    sqlite_with_rowid=False,
)

# The ids of episodes that were rolled up, as hashes: enough to say so to who comes too late, and not to count them again.
closed = Table("closed", metadata, Column("key", _Key, primary_key=True, autoincrement=False))

# Where episodes stopped to be resumed, maybe by another process.
pauses = Table(
    "pauses",
    metadata,
    Column("pause", _Key, primary_key=True),
    Column("thread_id", _Text, nullable=False),
    Column("checkpoint_id", _Text, nullable=False),
    Column("eid", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("resumed_at", Double),
    Index("pauses_place", "thread_id", "checkpoint_id", unique=True),
    Index("pauses_eid", "eid"),
)

outcomes = Table(
    "outcomes",
    metadata,
    Column("number", _Key, primary_key=True),
    Column("eid", BigInteger, nullable=False),
    Column("source", _Text, nullable=False),
    Column("source_id", _Text, nullable=False),
    Column("metric", _Text, nullable=False, server_default=text("''")),
    Column("reward", Double),
    Column("used", _Text),
    Column("at", Double, nullable=False),
    # With the number in it, so that Postgres finds the first one of an episode here, whatever it knows of the table: by the
    # other index it would read all outcomes from the beginning.
    Index("outcomes_eid", "eid", "number"),
)

actions = Table(
    "actions",
    metadata,
    Column("number", _Key, primary_key=True),
    Column("seq", BigInteger),
    Column("kind", _Text, nullable=False),
    Column("actor", _Text, nullable=False),
    Column("reason", _Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("evidence", _Text),
    # A change of status: from and to, the restore count before it, and the action that it takes back.
    Column("status_before", _Text),
    Column("status_after", _Text),
    Column("epoch", Integer),
    Column("undoes", BigInteger),
    Index("actions_seq", "seq"),
)

changes = Table(
    "changes",
    metadata,
    Column("revision", _Key, primary_key=True),
    Column("kind", _Text, nullable=False),
    Column("low", BigInteger, nullable=False),
    Column("high", BigInteger, nullable=False),
)


# Plain SQL, which both databases understand: SQLAlchemy would import all of its drivers of Postgres for the condition.
_PARTIAL = (
    "CREATE UNIQUE INDEX memories_live ON memories (namespace, id) WHERE retired_at IS NULL",
    (
        "CREATE INDEX evidence_trials ON evidence (seq) "
        "WHERE hold_out IS NOT NULL OR parting IS NOT NULL OR status = 'pinned'"
    ),
    # Few memories are held back, and a search elsewhere has to know how many.
    "CREATE INDEX evidence_held ON evidence (seq) WHERE status <> 'active' AND status <> 'pinned'",
    # Only the open ones are ever listed, and there are few of them.
    "CREATE INDEX episodes_open ON episodes (started_at) WHERE reward IS NULL",
    # What a memory was credited with: its history, and what its change detector has not heard yet.
    "CREATE INDEX exposures_credited ON exposures (seq, heard) WHERE size > 0",
    "CREATE INDEX exposures_drawn ON exposures (seq) WHERE propensity < 1",
)

# A transaction with a lower revision may be committed later, so a reader who goes by revisions would miss it. He goes by
# the transactions that were over when he last looked; SQLite, which has one writer at a time, needs no such thing.
_XACT = (
    (
        "ALTER TABLE changes ADD COLUMN xact BIGINT NOT NULL "
        "DEFAULT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)"
    ),
    "CREATE INDEX changes_xact ON changes (xact)",
)


def _initial(connection: Connection) -> None:
    metadata.create_all(connection, checkfirst=False)
    for statement in (*_PARTIAL, *(_XACT if connection.dialect.name == "postgresql" else ())):
        connection.exec_driver_sql(statement)


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_initial,)
"""Append only. The schema version of a database is how many of these it has seen."""
