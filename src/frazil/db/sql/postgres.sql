-- What PostgreSQL says in its own words: row locks, arrays and its clock.

-- name: hold_namespace
-- Whoever puts something into a namespace shares this lock; a drop of the namespace waits for it.
SELECT 1 FROM namespaces WHERE namespace = :namespace FOR KEY SHARE;

-- name: hold_namespace_alone
-- Taken before a namespace is looked into and dropped: nothing can enter it in between.
SELECT 1 FROM namespaces WHERE namespace = :namespace FOR UPDATE;

-- name: hold_relations
-- In the order of uuids, as every transaction takes them, so that two never wait for each other.
SELECT uuid FROM relations
WHERE uuid IN (SELECT jsonb_array_elements_text(CAST(:uuids AS jsonb)))
ORDER BY uuid FOR UPDATE;

-- name: hold_locations
-- Two nested locations conflict on no index, so check and insert of locations run one at a time.
-- The number is only a name for this lock; swaps that keep their locations never take it.
SELECT pg_advisory_xact_lock(7305804402127890);

-- name: location_at_or_above
-- Every ancestor of a location is one equality; the prefixes come as a JSON list. The longest
-- match is the nearest owner.
SELECT location, uuid FROM relation_locations
WHERE location IN (SELECT jsonb_array_elements_text(CAST(:prefixes AS jsonb))) AND uuid <> :uuid
ORDER BY length(location) DESC LIMIT 1;

-- name: database_clock
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint);

-- name: forget_keys
DELETE FROM idempotency_keys
WHERE created_ms < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - :older_than_ms;

-- name: forget_commits
DELETE FROM commits
WHERE created_ms < CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) - :older_than_ms;

-- name: create_schema_version
CREATE TABLE IF NOT EXISTS schema_version (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_ms bigint NOT NULL
        DEFAULT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)
);

-- name: hold_schema
-- One process migrates; the others wait here and then find nothing to do.
SELECT pg_advisory_xact_lock(7305804402127891);

-- name: now_ms
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint);

-- name: share_relation
-- A lease waits for a commit of the table, and a commit for a lease: each sees what the other did.
SELECT metadata_location FROM relations WHERE uuid = :uuid FOR SHARE;

-- name: release_doomed_files
DELETE FROM doomed_files
WHERE uuid = :uuid AND state = 'quarantined'
    AND path_key IN (SELECT jsonb_array_elements_text(CAST(:path_keys AS jsonb)));

-- name: files_being_deleted
SELECT path FROM doomed_files
WHERE uuid = :uuid AND state = 'deleting'
    AND path_key IN (SELECT jsonb_array_elements_text(CAST(:path_keys AS jsonb)))
ORDER BY path;

-- name: swept_prefixes
SELECT prefix FROM intents
WHERE uuid = :uuid AND state = 'swept'
    AND prefix IN (SELECT jsonb_array_elements_text(CAST(:prefixes AS jsonb)));

-- name: leased_among
SELECT snapshot_id FROM leases
WHERE uuid = :uuid AND expires_ms > :now_ms
    AND snapshot_id IN (
        SELECT CAST(jsonb_array_elements_text(CAST(:snapshot_ids AS jsonb)) AS bigint)
    );

-- name: overlapping_intents
-- The folder itself, one above it, or one below it: what begins with `folder/`.
SELECT prefix FROM intents
WHERE uuid = :uuid AND state = 'live' AND expires_ms > :now_ms
    AND (
        prefix IN (SELECT jsonb_array_elements_text(CAST(:prefixes AS jsonb)))
        OR (prefix > :first AND prefix < :last)
    )
LIMIT 1;

-- name: metadata_within
-- Metadata files whose location has this text in it, however the rest of it is written. Asked only
-- before files are deleted, so it may look at every row.
SELECT namespace, name, metadata_location FROM relations
WHERE uuid <> :uuid AND strpos(metadata_location, CAST(:path AS text)) > 0;

-- name: insert_retired_metadata
-- Most commits do this, so it asks for the time by itself and answers `has_doomed_files` too.
INSERT INTO retired_metadata (uuid, path, retired_ms)
VALUES (:uuid, :path, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint))
RETURNING
    EXISTS (SELECT 1 FROM doomed_files WHERE uuid = :uuid),
    EXISTS (SELECT 1 FROM intents WHERE uuid = :uuid AND state = 'swept');
