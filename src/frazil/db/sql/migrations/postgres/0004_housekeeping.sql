-- What protects files from deletion, what is to be deleted, and the jobs that do it. No row refers
-- to `relations`: the files of a purged table are deleted after its row is gone. Times are
-- milliseconds since 1970 by the clock of this database.

-- A reader of a snapshot. Its files stay until the lease ends.
CREATE TABLE leases (
    lease_id text COLLATE "C" PRIMARY KEY,
    uuid text COLLATE "C" NOT NULL,
    snapshot_id bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    created_ms bigint NOT NULL,
    expires_ms bigint NOT NULL
);

CREATE INDEX leases_by_table ON leases (uuid, snapshot_id);

CREATE INDEX leases_by_expiry ON leases (expires_ms);

-- A writer that writes below a prefix. An expired row that is still 'live' counts as ended.
CREATE TABLE intents (
    intent_id text COLLATE "C" PRIMARY KEY,
    uuid text COLLATE "C" NOT NULL,
    prefix text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('live', 'ended', 'swept')),
    created_ms bigint NOT NULL,
    expires_ms bigint NOT NULL,
    ended_ms bigint
);

CREATE INDEX intents_by_table ON intents (uuid, state, prefix);

-- Snapshots that a commit has removed and whose files are still there.
CREATE TABLE expired_snapshots (
    uuid text COLLATE "C" NOT NULL,
    snapshot_id bigint NOT NULL,
    snapshot bytea NOT NULL,
    statistics text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    expired_ms bigint NOT NULL,
    delete_after_ms bigint NOT NULL,
    PRIMARY KEY (uuid, snapshot_id)
);

CREATE INDEX expired_snapshots_by_due ON expired_snapshots (delete_after_ms);

-- Schemas and partition specs that a commit has removed, so that a snapshot can come back.
CREATE TABLE removed_definitions (
    uuid text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('schema', 'spec')),
    id bigint NOT NULL,
    definition bytea NOT NULL,
    removed_ms bigint NOT NULL,
    PRIMARY KEY (uuid, kind, id)
);

-- Metadata files that the metadata log no longer names. Apart from `doomed_files`, because most
-- commits add one, and none looks for one.
CREATE TABLE retired_metadata (
    uuid text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    retired_ms bigint NOT NULL
);

CREATE INDEX retired_metadata_by_table ON retired_metadata (uuid, retired_ms);

-- Files to delete. `path_key` is the path, or a hash of a path that is too long for an index.
CREATE TABLE doomed_files (
    uuid text COLLATE "C" NOT NULL,
    path_key text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    size_bytes bigint,
    state text COLLATE "C" NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    found_ms bigint NOT NULL,
    delete_after_ms bigint NOT NULL,
    PRIMARY KEY (uuid, path_key)
);

CREATE INDEX doomed_files_by_due ON doomed_files (delete_after_ms);

-- Tables that were dropped with purge and whose files are still there.
CREATE TABLE purged_tables (
    uuid text COLLATE "C" PRIMARY KEY,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    metadata_location text COLLATE "C" NOT NULL,
    locations text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('quarantined', 'deleting')),
    purged_ms bigint NOT NULL,
    delete_after_ms bigint NOT NULL
);

-- Jobs of maintenance: what is to be done, who does it, and what has come of it.
CREATE TABLE jobs (
    job_id text COLLATE "C" PRIMARY KEY,
    uuid text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    options text COLLATE "C" NOT NULL,
    dry_run integer NOT NULL,
    state text COLLATE "C" NOT NULL
        CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    started_by text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    worker text COLLATE "C",
    progress text COLLATE "C",
    result text COLLATE "C",
    error text COLLATE "C",
    attempts integer NOT NULL,
    cancel_requested integer NOT NULL,
    created_ms bigint NOT NULL,
    started_ms bigint,
    heartbeat_ms bigint,
    finished_ms bigint
);

CREATE INDEX jobs_by_table ON jobs (uuid, created_ms);

CREATE INDEX jobs_by_state ON jobs (state, created_ms);

-- How often a table is read and changed, by the hour.
CREATE TABLE table_activity (
    uuid text COLLATE "C" NOT NULL,
    hour_ms bigint NOT NULL,
    scans bigint NOT NULL,
    commits bigint NOT NULL,
    PRIMARY KEY (uuid, hour_ms)
);
