-- The catalog's rows. Names and keys compare by bytes (collation "C"), which for UTF-8 is the
-- order of code points. Times are milliseconds since 1970 by the clock of this database.

-- Namespaces: the levels joined by 0x1F are the key; the parent of a top-level one is ''.
CREATE TABLE namespaces (
    namespace text COLLATE "C" PRIMARY KEY,
    parent text COLLATE "C" NOT NULL,
    level text COLLATE "C" NOT NULL,
    properties text COLLATE "C" NOT NULL,
    UNIQUE (parent, level)
);

-- Tables and views share one space of names. A swap changes no indexed column, and the free space
-- of the fill factor lets PostgreSQL keep the new row on the page of the old one.
CREATE TABLE relations (
    uuid text COLLATE "C" PRIMARY KEY,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('table', 'view')),
    namespace text COLLATE "C" NOT NULL REFERENCES namespaces (namespace),
    name text COLLATE "C" NOT NULL,
    metadata_location text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    UNIQUE (namespace, name)
) WITH (fillfactor = 70);

CREATE INDEX relations_by_kind ON relations (namespace, kind, name);

-- Every canonical location a table owns; none is, lies in or holds one of another table.
CREATE TABLE relation_locations (
    location text COLLATE "C" PRIMARY KEY,
    uuid text COLLATE "C" NOT NULL REFERENCES relations (uuid) ON DELETE CASCADE
);

CREATE INDEX relation_locations_by_uuid ON relation_locations (uuid);

-- The proof that a transaction happened ('committed') or never will ('void').
CREATE TABLE commits (
    commit_id text COLLATE "C" PRIMARY KEY,
    state text COLLATE "C" NOT NULL CHECK (state IN ('committed', 'void')),
    created_ms bigint NOT NULL
        DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
);

CREATE INDEX commits_by_age ON commits (created_ms);

-- What a finished request is answered with when it comes again; commit_id is null for an answer
-- that changed nothing.
CREATE TABLE idempotency_keys (
    principal text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    fingerprint text COLLATE "C" NOT NULL,
    status integer NOT NULL,
    body bytea,
    relation_uuid text COLLATE "C",
    committed bytea,
    commit_id text COLLATE "C",
    created_ms bigint NOT NULL
        DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint),
    PRIMARY KEY (principal, idempotency_key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_ms);

-- Change events. Identity values do not commit in order, therefore the position comes later.
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    uuid text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    operation text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    payload bytea NOT NULL,
    created_ms bigint NOT NULL
        DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint),
    position bigint UNIQUE,
    UNIQUE (uuid, version)
);

CREATE INDEX outbox_unplaced ON outbox (id) WHERE position IS NULL;

CREATE TABLE counters (
    name text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO counters (name, value) VALUES ('outbox-position', 0);
