-- The catalog's rows. Texts compare by bytes (SQLite's BINARY collation), which for UTF-8 is the
-- order of code points. Times are milliseconds since 1970 by the clock of this database.

-- Namespaces: the levels joined by 0x1F are the key; the parent of a top-level one is ''.
CREATE TABLE namespaces (
    namespace TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    level TEXT NOT NULL,
    properties TEXT NOT NULL,
    UNIQUE (parent, level)
);

-- Tables and views share one space of names.
CREATE TABLE relations (
    uuid TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('table', 'view')),
    namespace TEXT NOT NULL REFERENCES namespaces (namespace),
    name TEXT NOT NULL,
    metadata_location TEXT NOT NULL,
    version INTEGER NOT NULL,
    UNIQUE (namespace, name)
);

CREATE INDEX relations_by_kind ON relations (namespace, kind, name);

-- Every canonical location a table owns; none is, lies in or holds one of another table.
CREATE TABLE relation_locations (
    location TEXT PRIMARY KEY,
    uuid TEXT NOT NULL REFERENCES relations (uuid) ON DELETE CASCADE
) WITHOUT ROWID;

CREATE INDEX relation_locations_by_uuid ON relation_locations (uuid);

-- The proof that a transaction happened ('committed') or never will ('void').
CREATE TABLE commits (
    commit_id TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('committed', 'void')),
    created_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
) WITHOUT ROWID;

CREATE INDEX commits_by_age ON commits (created_ms);

-- What a finished request is answered with when it comes again; commit_id is null for an answer
-- that changed nothing.
CREATE TABLE idempotency_keys (
    principal TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status INTEGER NOT NULL,
    body BLOB,
    relation_uuid TEXT,
    committed BLOB,
    commit_id TEXT,
    created_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    PRIMARY KEY (principal, idempotency_key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_ms);

-- Change events. An id is never used twice (AUTOINCREMENT); the position comes later.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid TEXT NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    operation TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,
    request_id TEXT NOT NULL,
    payload BLOB NOT NULL,
    created_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    position INTEGER UNIQUE,
    UNIQUE (uuid, version)
);

CREATE INDEX outbox_unplaced ON outbox (id) WHERE position IS NULL;

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
);

INSERT INTO counters (name, value) VALUES ('outbox-position', 0);
