-- What SQLite says in its own words. There is one writer, so nothing needs a row lock.

-- name: hold_namespace
SELECT 1 FROM namespaces WHERE namespace = :namespace;

-- name: hold_namespace_alone
SELECT 1 FROM namespaces WHERE namespace = :namespace;

-- name: hold_relations
SELECT uuid FROM relations WHERE uuid IN (SELECT value FROM json_each(:uuids)) ORDER BY uuid;

-- name: hold_locations
-- Nothing to hold: the writer is alone.
SELECT 1;

-- name: location_at_or_above
-- Every ancestor of a location is one equality; the prefixes come as a JSON list. The longest
-- match is the nearest owner.
SELECT location, uuid FROM relation_locations
WHERE location IN (SELECT value FROM json_each(:prefixes)) AND uuid <> :uuid
ORDER BY length(location) DESC LIMIT 1;

-- name: database_clock
-- SQLite has no clock of its own. A row from the future shows that the clock was ahead before.
SELECT max(created_ms) FROM commits;

-- name: forget_keys
DELETE FROM idempotency_keys
WHERE created_ms < CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - :older_than_ms;

-- name: forget_commits
DELETE FROM commits
WHERE created_ms < CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - :older_than_ms;

-- name: create_schema_version
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_ms INTEGER NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
);

-- name: hold_schema
-- BEGIN IMMEDIATE already holds the whole file.
SELECT 1;

-- name: now_ms
SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);

-- name: share_relation
SELECT metadata_location FROM relations WHERE uuid = :uuid;

-- name: release_doomed_files
DELETE FROM doomed_files
WHERE uuid = :uuid AND state = 'quarantined'
    AND path_key IN (SELECT value FROM json_each(:path_keys));

-- name: files_being_deleted
SELECT path FROM doomed_files
WHERE uuid = :uuid AND state = 'deleting'
    AND path_key IN (SELECT value FROM json_each(:path_keys))
ORDER BY path;

-- name: swept_prefixes
SELECT prefix FROM intents
WHERE uuid = :uuid AND state = 'swept' AND prefix IN (SELECT value FROM json_each(:prefixes));

-- name: leased_among
SELECT snapshot_id FROM leases
WHERE uuid = :uuid AND expires_ms > :now_ms
    AND snapshot_id IN (SELECT value FROM json_each(:snapshot_ids));

-- name: overlapping_intents
-- The folder itself, one above it, or one below it: what begins with `folder/`.
SELECT prefix FROM intents
WHERE uuid = :uuid AND state = 'live' AND expires_ms > :now_ms
    AND (
        prefix IN (SELECT value FROM json_each(:prefixes))
        OR (prefix > :first AND prefix < :last)
    )
LIMIT 1;

-- name: metadata_within
-- Metadata files whose location has this text in it, however the rest of it is written. Asked only
-- before files are deleted, so it may look at every row.
SELECT namespace, name, metadata_location FROM relations
WHERE uuid <> :uuid AND instr(metadata_location, :path) > 0;

-- name: insert_retired_metadata
-- Most commits do this, so it asks for the time by itself and answers `has_doomed_files` too.
INSERT INTO retired_metadata (uuid, path, retired_ms)
VALUES (:uuid, :path, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))
RETURNING
    EXISTS (SELECT 1 FROM doomed_files WHERE uuid = :uuid),
    EXISTS (SELECT 1 FROM intents WHERE uuid = :uuid AND state = 'swept');
