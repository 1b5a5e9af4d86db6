-- The statements both databases share. A block begins with `-- name:`; the comment below it says
-- why the statement is as it is. Parameters are written `:name`; `frazil.db.sql` adapts them.

-- name: namespace_properties
-- Existence and properties are one question: no row, no namespace.
SELECT properties FROM namespaces WHERE namespace = :namespace;

-- name: list_namespaces
-- Runs along the index (parent, level); names compare by code point in both databases.
SELECT level FROM namespaces
WHERE parent = :parent AND level > :after
ORDER BY level LIMIT :limit;

-- name: create_namespace
-- Nothing is inserted where one exists: an error would end a PostgreSQL transaction.
INSERT INTO namespaces (namespace, parent, level, properties)
VALUES (:namespace, :parent, :level, :properties)
ON CONFLICT DO NOTHING;

-- name: set_namespace_properties
-- A compare-and-swap: properties are kept as JSON with sorted keys, so equal maps are equal texts.
UPDATE namespaces SET properties = :properties
WHERE namespace = :namespace AND properties = :expected;

-- name: namespace_contents
-- What keeps a namespace from being dropped, counted only as far as "is there any".
SELECT
    EXISTS (SELECT 1 FROM namespaces WHERE parent = :namespace),
    EXISTS (SELECT 1 FROM relations WHERE namespace = :namespace AND kind = 'table'),
    EXISTS (SELECT 1 FROM relations WHERE namespace = :namespace AND kind = 'view');

-- name: drop_namespace
DELETE FROM namespaces WHERE namespace = :namespace;

-- name: relation
-- The hot path of every load: one probe of the unique index (namespace, name).
SELECT kind, uuid, metadata_location, version FROM relations
WHERE namespace = :namespace AND name = :name;

-- name: relation_by_uuid
SELECT kind, namespace, name, metadata_location, version FROM relations WHERE uuid = :uuid;

-- name: list_relations
-- Runs along the index (namespace, kind, name), so views do not slow the listing of tables.
SELECT name FROM relations
WHERE namespace = :namespace AND kind = :kind AND name > :after
ORDER BY name LIMIT :limit;

-- name: sample_relations
-- `frazil doctor` checks whether their metadata files can be read.
SELECT namespace, name, metadata_location FROM relations ORDER BY uuid LIMIT :limit;

-- name: create_relation
-- Both the name and the uuid may be taken; which of them it was is asked afterwards.
INSERT INTO relations (uuid, kind, namespace, name, metadata_location, version)
VALUES (:uuid, :kind, :namespace, :name, :metadata_location, :version)
ON CONFLICT DO NOTHING;

-- name: swap_relation
-- The one compare-and-swap of the catalog. Its row count decides: 1 = swapped, 0 = lost.
UPDATE relations
SET namespace = :namespace, name = :name, metadata_location = :metadata_location,
    version = :version
WHERE uuid = :uuid
    AND namespace = :expected_namespace AND name = :expected_name
    AND metadata_location = :expected_metadata_location AND version = :expected_version;

-- name: drop_relation
-- The same comparison as the swap; the relation's locations go with it (ON DELETE CASCADE).
DELETE FROM relations
WHERE uuid = :uuid
    AND namespace = :expected_namespace AND name = :expected_name
    AND metadata_location = :expected_metadata_location AND version = :expected_version;

-- name: locations_of
SELECT location FROM relation_locations WHERE uuid = :uuid;

-- name: drop_locations
DELETE FROM relation_locations WHERE uuid = :uuid;

-- name: location_below
-- Descendants are one range of the index: what starts with `location/` sorts between
-- `location/` and `location0`, because `0` is the character after `/`.
SELECT location FROM relation_locations
WHERE location > :first AND location < :last AND uuid <> :uuid
LIMIT 1;

-- name: create_location
INSERT INTO relation_locations (location, uuid) VALUES (:location, :uuid);

-- name: claim_commit
-- The first statement of every transaction. On PostgreSQL it waits for another transaction that
-- has claimed the id and is still open, which is what makes `resolve` a proof.
INSERT INTO commits (commit_id, state) VALUES (:commit_id, :state)
ON CONFLICT DO NOTHING;

-- name: commit_state
SELECT state FROM commits WHERE commit_id = :commit_id;

-- name: insert_key
-- On conflict nothing is inserted: of two replicas that finish one request the unique index
-- decides, and the row count shows who came second.
INSERT INTO idempotency_keys
    (principal, idempotency_key, fingerprint, status, body, relation_uuid, committed, commit_id)
VALUES
    (:principal, :idempotency_key, :fingerprint, :status, :body, :relation_uuid, :committed,
     :commit_id)
ON CONFLICT DO NOTHING;

-- name: drop_key
-- Only for the row of a probe. Rows of requests are forgotten by their age.
DELETE FROM idempotency_keys
WHERE principal = :principal AND idempotency_key = :idempotency_key;

-- name: key
SELECT fingerprint, status, body, relation_uuid, committed FROM idempotency_keys
WHERE principal = :principal AND idempotency_key = :idempotency_key;

-- name: key_of_another
-- After a conflict: a key's row that this very transaction has not written itself.
SELECT fingerprint, status, body, relation_uuid, committed FROM idempotency_keys
WHERE principal = :principal AND idempotency_key = :idempotency_key
    AND (commit_id IS NULL OR commit_id <> :commit_id);

-- name: stream
-- Read without a lock: whoever commits by it swaps the table's row, which a newer row moved too.
SELECT epoch, committed FROM streams
WHERE uuid = :uuid AND branch = :branch AND stream = :stream;

-- name: forget_streams
-- A branch that moved backwards no longer holds what its streams committed.
DELETE FROM streams WHERE uuid = :uuid AND branch = :branch;

-- name: write_stream
-- Behind the table's swap, so two writers never meet here. An epoch never falls, whatever is sent.
INSERT INTO streams (uuid, branch, stream, epoch, committed)
VALUES (:uuid, :branch, :stream, :epoch, :committed)
ON CONFLICT (uuid, branch, stream) DO UPDATE
SET epoch = excluded.epoch, committed = excluded.committed
WHERE excluded.epoch > streams.epoch;

-- name: insert_event
-- (uuid, version) is unique; a version that was used before means that the swap came too late.
INSERT INTO outbox
    (uuid, version, kind, operation, namespace, name, principal, request_id, payload)
VALUES
    (:uuid, :version, :kind, :operation, :namespace, :name, :principal, :request_id, :payload)
ON CONFLICT DO NOTHING;

-- name: last_version
SELECT max(version) FROM outbox WHERE uuid = :uuid;

-- name: unplaced_event
-- Asked before the lock is taken, so that an idle relay writes nothing.
SELECT 1 FROM outbox WHERE position IS NULL LIMIT 1;

-- name: lock_position
-- Changes nothing and holds the counter's row until COMMIT: one relay at a time.
UPDATE counters SET value = value WHERE name = 'outbox-position';

-- name: last_position
SELECT value FROM counters WHERE name = 'outbox-position';

-- name: assign_positions
-- Ids of one relation rise with its versions, because each was inserted while its row was held:
-- numbering by id keeps every relation's events in order. Between relations any order is right.
UPDATE outbox SET position = CAST(:last AS bigint) + numbered.rank
FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS rank FROM outbox
    WHERE position IS NULL ORDER BY id LIMIT :limit
) AS numbered
WHERE outbox.id = numbered.id;

-- name: set_last_position
-- Kept apart from the rows, so that positions go on rising after old events are deleted.
UPDATE counters SET value = :last WHERE name = 'outbox-position';

-- name: events
SELECT position, uuid, version, kind, operation, namespace, name, principal, request_id, payload
FROM outbox WHERE position > :after ORDER BY position LIMIT :limit;

-- name: schema_version
SELECT max(version) FROM schema_version;

-- name: record_schema_version
INSERT INTO schema_version (version, name) VALUES (:version, :name);

-- name: secret
SELECT value FROM secrets WHERE name = :name;

-- name: insert_secret
-- Whoever comes first draws it; all replicas then read the same.
INSERT INTO secrets (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING;
