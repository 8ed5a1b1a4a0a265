"""The first tables, and a log that can only grow."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("display", sa.String(length=80), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("revoked", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_accounts")),
    )
    op.create_table(
        "log",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("time", sa.Float(), nullable=False),
        sa.Column("actor", sa.String(length=80), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("object", sa.String(length=64), nullable=False),
        sa.Column("board", sa.String(length=16), nullable=False),
        sa.Column("before", sa.String(length=32), nullable=False),
        sa.Column("after", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_log")),
    )
    op.create_index(op.f("ix_log_object"), "log", ["object"], unique=False)

    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
    )
    op.create_table(
        "reference_sets",
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("examples", sa.LargeBinary(), nullable=False),
        sa.Column("graphs", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("sha", name=op.f("pk_reference_sets")),
    )
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("measures", sa.JSON(), nullable=False),
        sa.Column("seen", sa.Float(), nullable=False),
        sa.Column("at", sa.String(length=120), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("revoked", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["account"], ["accounts.name"], name=op.f("fk_tokens_account")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
    op.create_index(op.f("ix_tokens_account"), "tokens", ["account"], unique=False)

    op.create_table(
        "tracks",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column("about", sa.Text(), nullable=False),
        sa.Column("reference_set", sa.String(length=64), nullable=False),
        sa.Column("plans", sa.Integer(), nullable=False),
        sa.Column("shown_examples", sa.JSON(), nullable=False),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("day_quota", sa.Integer(), nullable=False),
        sa.Column("total_quota", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["reference_set"], ["reference_sets.sha"], name=op.f("fk_tracks_reference_set")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tracks")),
    )
    op.create_table(
        "scorers",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("track", sa.String(length=64), nullable=False),
        sa.Column("measure", sa.String(length=16), nullable=False),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("identity", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("retired", sa.Float(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["track"], ["tracks.name"], name=op.f("fk_scorers_track")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scorers")),
    )
    op.create_index(op.f("ix_scorers_track"), "scorers", ["track"], unique=False)

    op.create_table(
        "submissions",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("track", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("system", sa.String(length=80), nullable=False),
        sa.Column("sha", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("plans", sa.Integer(), nullable=False),
        sa.Column("link", sa.String(length=300), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("control", sa.String(length=32), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("withdrawn", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["account"], ["accounts.name"], name=op.f("fk_submissions_account")),
        sa.ForeignKeyConstraint(["track"], ["tracks.name"], name=op.f("fk_submissions_track")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint("account", "track", "sha", name=op.f("uq_submissions_account_track_sha")),
    )
    op.create_index(op.f("ix_submissions_account"), "submissions", ["account"], unique=False)
    op.create_index(op.f("ix_submissions_track_created"), "submissions", ["track", "created"], unique=False)

    op.create_table(
        "jobs",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("submission", sa.String(length=16), nullable=False),
        sa.Column("scorer", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=False),
        sa.Column("worker", sa.String(length=80), nullable=False),
        sa.Column("lease", sa.String(length=32), nullable=False),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("queued", sa.Float(), nullable=False),
        sa.Column("started", sa.Float(), nullable=True),
        sa.Column("ended", sa.Float(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["scorer"], ["scorers.id"], name=op.f("fk_jobs_scorer")),
        sa.ForeignKeyConstraint(["submission"], ["submissions.id"], name=op.f("fk_jobs_submission")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("submission", "scorer", name=op.f("uq_jobs_submission_scorer")),
    )
    op.create_index(op.f("ix_jobs_scorer"), "jobs", ["scorer"], unique=False)
    op.create_index(op.f("ix_jobs_state_id"), "jobs", ["state", "id"], unique=False)

    op.create_table(
        "scores",
        sa.Column("submission", sa.String(length=16), nullable=False),
        sa.Column("scorer", sa.String(length=16), nullable=False),
        sa.Column("figures", sa.JSON(), nullable=False),
        sa.Column("per_example", sa.LargeBinary(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["scorer"], ["scorers.id"], name=op.f("fk_scores_scorer")),
        sa.ForeignKeyConstraint(["submission"], ["submissions.id"], name=op.f("fk_scores_submission")),
        sa.PrimaryKeyConstraint("submission", "scorer", name=op.f("pk_scores")),
    )
    op.create_index(op.f("ix_scores_scorer"), "scores", ["scorer"], unique=False)

    op.create_table(
        "standings",
        sa.Column("scorer", sa.String(length=16), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("made", sa.Float(), nullable=False),
        sa.Column("rows", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["scorer"], ["scorers.id"], name=op.f("fk_standings_scorer")),
        sa.PrimaryKeyConstraint("scorer", name=op.f("pk_standings")),
    )
    for statement in _GUARDS[op.get_bind().dialect.name]:
        op.execute(statement)


def downgrade() -> None:
    for table in (
        "standings",
        "scores",
        "jobs",
        "submissions",
        "scorers",
        "tracks",
        "tokens",
        "workers",
        "reference_sets",
        "meta",
        "log",
        "accounts",
    ):
        op.drop_table(table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION log_is_append_only()")


_GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER log_no_{what} BEFORE {what} ON log BEGIN SELECT RAISE(ABORT, 'the log can only grow'); END"
        for what in ("update", "delete")
    ],
    "postgresql": [
        "CREATE FUNCTION log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'the log can only grow'; END $$",
        "CREATE TRIGGER log_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON log "
        "FOR EACH STATEMENT EXECUTE FUNCTION log_is_append_only()",
    ],
}
