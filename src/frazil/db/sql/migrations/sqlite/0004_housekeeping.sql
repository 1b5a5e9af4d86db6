-- What protects files from deletion, what is to be deleted, and the jobs that do it. No row refers
-- to `relations`: the files of a purged table are deleted after its row is gone. Times are
-- milliseconds since 1970 by the clock of this database.

-- A reader of a snapshot. Its files stay until the lease ends.
CREATE TABLE leases (
    lease_id TEXT PRIMARY KEY,
    uuid TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    principal TEXT NOT NULL,
    holder TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL
);

CREATE INDEX leases_by_table ON leases (uuid, snapshot_id);

CREATE INDEX leases_by_expiry ON leases (expires_ms);

-- A writer that writes below a prefix. An expired row that is still 'live' counts as ended.
CREATE TABLE intents (
    intent_id TEXT PRIMARY KEY,
    uuid TEXT NOT NULL,
    prefix TEXT NOT NULL,
    principal TEXT NOT NULL,
    holder TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('live', 'ended', 'swept')),
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ended_ms INTEGER
);

CREATE INDEX intents_by_table ON intents (uuid, state, prefix);

-- Snapshots that a commit has removed and whose files are still there.
CREATE TABLE expired_snapshots (
    uuid TEXT NOT NULL,
    snapshot_id INTEGER NOT NULL,
    snapshot BLOB NOT NULL,
    statistics TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    expired_ms INTEGER NOT NULL,
    delete_after_ms INTEGER NOT NULL,
    PRIMARY KEY (uuid, snapshot_id)
);

CREATE INDEX expired_snapshots_by_due ON expired_snapshots (delete_after_ms);

-- Schemas and partition specs that a commit has removed, so that a snapshot can come back.
CREATE TABLE removed_definitions (
    uuid TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('schema', 'spec')),
    id INTEGER NOT NULL,
    definition BLOB NOT NULL,
    removed_ms INTEGER NOT NULL,
    PRIMARY KEY (uuid, kind, id)
);

-- Metadata files that the metadata log no longer names. Apart from `doomed_files`, because most
-- commits add one, and none looks for one.
CREATE TABLE retired_metadata (
    uuid TEXT NOT NULL,
    path TEXT NOT NULL,
    retired_ms INTEGER NOT NULL
);

CREATE INDEX retired_metadata_by_table ON retired_metadata (uuid, retired_ms);

-- Files to delete. `path_key` is the path, or a hash of a path that is too long for an index.
CREATE TABLE doomed_files (
    uuid TEXT NOT NULL,
    path_key TEXT NOT NULL,
    path TEXT NOT NULL,
    reason TEXT NOT NULL,
    size_bytes INTEGER,
    state TEXT NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    found_ms INTEGER NOT NULL,
    delete_after_ms INTEGER NOT NULL,
    PRIMARY KEY (uuid, path_key)
);

CREATE INDEX doomed_files_by_due ON doomed_files (delete_after_ms);

-- Tables that were dropped with purge and whose files are still there.
CREATE TABLE purged_tables (
    uuid TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    metadata_location TEXT NOT NULL,
    locations TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    purged_ms INTEGER NOT NULL,
    delete_after_ms INTEGER NOT NULL
);

-- Jobs of maintenance: what is to be done, who does it, and what has come of it.
CREATE TABLE jobs (
    job_id TEXT PRIMARY KEY,
    uuid TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    operation TEXT NOT NULL,
    options TEXT NOT NULL,
    dry_run INTEGER NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    started_by TEXT NOT NULL,
    principal TEXT NOT NULL,
    worker TEXT,
    progress TEXT,
    result TEXT,
    error TEXT,
    attempts INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    started_ms INTEGER,
    heartbeat_ms INTEGER,
    finished_ms INTEGER
);

CREATE INDEX jobs_by_table ON jobs (uuid, created_ms);

CREATE INDEX jobs_by_state ON jobs (state, created_ms);

-- How often a table is read and changed, by the hour.
CREATE TABLE table_activity (
    uuid TEXT NOT NULL,
    hour_ms INTEGER NOT NULL,
    scans INTEGER NOT NULL,
    commits INTEGER NOT NULL,
    PRIMARY KEY (uuid, hour_ms)
);
