-- The statements about leases, intents and files to delete. Both databases share them.

-- name: store_lease
-- A lease that exists is renewed. It never ends earlier than it would have.
INSERT INTO leases (lease_id, uuid, snapshot_id, principal, holder, created_ms, expires_ms)
VALUES (:lease_id, :uuid, :snapshot_id, :principal, :holder, :now_ms, :expires_ms)
ON CONFLICT (lease_id) DO UPDATE
SET expires_ms = excluded.expires_ms
WHERE excluded.expires_ms > leases.expires_ms;

-- name: lease
SELECT uuid, snapshot_id, principal, holder, created_ms, expires_ms FROM leases
WHERE lease_id = :lease_id;

-- name: live_leases
SELECT lease_id, snapshot_id, principal, holder, created_ms, expires_ms FROM leases
WHERE uuid = :uuid AND expires_ms > :now_ms
ORDER BY created_ms, lease_id;

-- name: listed_leases
-- There may be very many of scan plans, so these come last.
SELECT lease_id, snapshot_id, principal, holder, created_ms, expires_ms FROM leases
WHERE uuid = :uuid AND expires_ms > :now_ms
ORDER BY CASE WHEN lease_id LIKE 'plan:%' THEN 1 ELSE 0 END, created_ms, lease_id
LIMIT :limit;

-- name: count_leases
-- The leases of clients; scan plans have no limit.
SELECT count(*) FROM leases
WHERE uuid = :uuid AND expires_ms > :now_ms AND lease_id NOT LIKE 'plan:%';

-- name: renew_lease
-- Not one that has ended: its snapshot may have expired.
UPDATE leases
SET expires_ms = CASE WHEN expires_ms > :expires_ms THEN expires_ms ELSE :expires_ms END
WHERE lease_id = :lease_id AND expires_ms > :now_ms;

-- name: drop_lease
DELETE FROM leases WHERE lease_id = :lease_id;

-- name: forget_leases
DELETE FROM leases WHERE expires_ms <= :now_ms;

-- name: insert_intent
INSERT INTO intents (intent_id, uuid, prefix, principal, holder, state, created_ms, expires_ms)
VALUES (:intent_id, :uuid, :prefix, :principal, :holder, 'live', :now_ms, :expires_ms)
ON CONFLICT DO NOTHING;

-- name: renew_intent
-- An intent that has ended stays ended: its files may be deleted by now.
UPDATE intents SET expires_ms = :expires_ms
WHERE intent_id = :intent_id AND state = 'live' AND expires_ms > :now_ms;

-- name: end_intent
UPDATE intents SET state = 'ended', ended_ms = :now_ms
WHERE intent_id = :intent_id AND state = 'live';

-- name: intent
SELECT uuid, prefix, principal, holder, state, created_ms, expires_ms, ended_ms FROM intents
WHERE intent_id = :intent_id;

-- name: intents_of
SELECT intent_id, prefix, principal, holder, state, created_ms, expires_ms, ended_ms FROM intents
WHERE uuid = :uuid
ORDER BY created_ms, intent_id;

-- name: live_intents
SELECT intent_id, prefix, principal, holder, created_ms, expires_ms FROM intents
WHERE uuid = :uuid AND state = 'live' AND expires_ms > :now_ms
ORDER BY created_ms, intent_id;

-- name: count_intents
SELECT count(*) FROM intents
WHERE uuid = :uuid AND state = 'live' AND expires_ms > :now_ms;

-- name: drop_live_intent
-- The writer has left nothing behind. An intent that has expired may be in a sweep already.
DELETE FROM intents WHERE intent_id = :intent_id AND state = 'live' AND expires_ms > :now_ms;

-- name: sweep_intent
-- Not an intent that was renewed since it was read.
UPDATE intents SET state = 'swept', ended_ms = coalesce(ended_ms, expires_ms)
WHERE intent_id = :intent_id
    AND (state IN ('ended', 'swept') OR (state = 'live' AND expires_ms <= :now_ms));

-- name: drop_intent
DELETE FROM intents WHERE intent_id = :intent_id;

-- name: forget_intents
-- Swept prefixes are kept long after, because a late writer must not commit their files.
DELETE FROM intents WHERE state = 'swept' AND ended_ms < :before_ms;

-- name: insert_expired_snapshot
-- A snapshot that was removed, brought back and removed again starts again.
INSERT INTO expired_snapshots
    (uuid, snapshot_id, snapshot, statistics, state, expired_ms, delete_after_ms)
VALUES
    (:uuid, :snapshot_id, :snapshot, :statistics, 'quarantined', :now_ms, :delete_after_ms)
ON CONFLICT (uuid, snapshot_id) DO UPDATE
SET snapshot = excluded.snapshot, statistics = excluded.statistics, state = excluded.state,
    expired_ms = excluded.expired_ms, delete_after_ms = excluded.delete_after_ms;

-- name: expired_snapshots
SELECT snapshot_id, snapshot, statistics, state, expired_ms, delete_after_ms
FROM expired_snapshots WHERE uuid = :uuid
ORDER BY expired_ms, snapshot_id;

-- name: expired_snapshot
SELECT snapshot_id, snapshot, statistics, state, expired_ms, delete_after_ms
FROM expired_snapshots WHERE uuid = :uuid AND snapshot_id = :snapshot_id;

-- name: take_expired_snapshot
-- Brings a snapshot back. One whose files are being deleted stays expired.
DELETE FROM expired_snapshots
WHERE uuid = :uuid AND snapshot_id = :snapshot_id AND state = 'quarantined';

-- name: delete_expired_snapshot
UPDATE expired_snapshots SET state = 'deleting'
WHERE uuid = :uuid AND snapshot_id = :snapshot_id;

-- name: drop_expired_snapshot
DELETE FROM expired_snapshots
WHERE uuid = :uuid AND snapshot_id = :snapshot_id AND state = 'deleting';

-- name: insert_removed_definition
INSERT INTO removed_definitions (uuid, kind, id, definition, removed_ms)
VALUES (:uuid, :kind, :id, :definition, :now_ms)
ON CONFLICT (uuid, kind, id) DO UPDATE
SET definition = excluded.definition, removed_ms = excluded.removed_ms;

-- name: removed_definitions
SELECT kind, id, definition FROM removed_definitions WHERE uuid = :uuid ORDER BY kind, id;

-- name: forget_removed_definitions
-- They are needed only as long as an expired snapshot of the table can come back.
DELETE FROM removed_definitions
WHERE uuid = :uuid AND NOT EXISTS (SELECT 1 FROM expired_snapshots WHERE uuid = :uuid);

-- name: retired_metadata
SELECT path, retired_ms FROM retired_metadata
WHERE uuid = :uuid AND retired_ms <= :before_ms
ORDER BY retired_ms LIMIT :limit;

-- name: drop_retired_metadata
DELETE FROM retired_metadata WHERE uuid = :uuid AND path = :path;

-- name: insert_doomed_file
-- A file that is already being deleted stays so.
INSERT INTO doomed_files
    (uuid, path_key, path, reason, size_bytes, state, found_ms, delete_after_ms)
VALUES
    (:uuid, :path_key, :path, :reason, :size_bytes, :state, :now_ms, :delete_after_ms)
ON CONFLICT (uuid, path_key) DO UPDATE
SET state = excluded.state
WHERE excluded.state = 'deleting';

-- name: doomed_files
-- A page, in the order of the keys.
SELECT path_key, path, reason, size_bytes, state, found_ms, delete_after_ms FROM doomed_files
WHERE uuid = :uuid AND path_key > :after
ORDER BY path_key LIMIT :limit;

-- name: doomed_file
SELECT path_key, path, reason, size_bytes, state, found_ms, delete_after_ms FROM doomed_files
WHERE uuid = :uuid AND path_key = :path_key;

-- name: release_doomed_file
DELETE FROM doomed_files
WHERE uuid = :uuid AND path_key = :path_key AND state = 'quarantined';

-- name: drop_doomed_file
DELETE FROM doomed_files WHERE uuid = :uuid AND path_key = :path_key;

-- name: has_doomed_files
-- Asked by every commit of declared files. Tables without such rows pay for two probes.
SELECT
    EXISTS (SELECT 1 FROM doomed_files WHERE uuid = :uuid),
    EXISTS (SELECT 1 FROM intents WHERE uuid = :uuid AND state = 'swept');

-- name: insert_purged_table
INSERT INTO purged_tables
    (uuid, namespace, name, metadata_location, locations, state, purged_ms, delete_after_ms)
VALUES
    (:uuid, :namespace, :name, :metadata_location, :locations, 'quarantined', :now_ms,
     :delete_after_ms)
ON CONFLICT (uuid) DO UPDATE
SET namespace = excluded.namespace, name = excluded.name,
    metadata_location = excluded.metadata_location, locations = excluded.locations,
    state = excluded.state, purged_ms = excluded.purged_ms,
    delete_after_ms = excluded.delete_after_ms;

-- name: purged_tables
SELECT uuid, namespace, name, metadata_location, locations, state, purged_ms, delete_after_ms
FROM purged_tables ORDER BY purged_ms, uuid;

-- name: purged_table
SELECT uuid, namespace, name, metadata_location, locations, state, purged_ms, delete_after_ms
FROM purged_tables WHERE uuid = :uuid;

-- name: take_purged_table
DELETE FROM purged_tables WHERE uuid = :uuid AND state = 'quarantined';

-- name: delete_purged_table
UPDATE purged_tables SET state = 'deleting' WHERE uuid = :uuid;

-- name: drop_purged_table
DELETE FROM purged_tables WHERE uuid = :uuid AND state = 'deleting';

-- name: drop_rows_of_purged
DELETE FROM doomed_files WHERE uuid = :uuid;

-- name: drop_retired_of_purged
DELETE FROM retired_metadata WHERE uuid = :uuid;

-- name: tables_with_work
-- The tables that have something to delete at this time, also after a crash in mid-deletion.
SELECT DISTINCT uuid FROM (
    SELECT uuid FROM expired_snapshots WHERE delete_after_ms <= :now_ms OR state = 'deleting'
    UNION ALL
    SELECT uuid FROM doomed_files WHERE delete_after_ms <= :now_ms OR state = 'deleting'
    UNION ALL
    SELECT uuid FROM purged_tables WHERE delete_after_ms <= :now_ms OR state = 'deleting'
    UNION ALL
    SELECT uuid FROM intents WHERE state = 'ended' OR (state = 'live' AND expires_ms <= :now_ms)
    UNION ALL
    SELECT uuid FROM retired_metadata WHERE retired_ms <= :now_ms
) AS work
ORDER BY uuid;

-- name: add_activity
INSERT INTO table_activity (uuid, hour_ms, scans, commits)
VALUES (:uuid, :hour_ms, :scans, :commits)
ON CONFLICT (uuid, hour_ms) DO UPDATE
SET scans = table_activity.scans + excluded.scans,
    commits = table_activity.commits + excluded.commits;

-- name: activity
SELECT uuid, sum(scans), sum(commits) FROM table_activity
WHERE hour_ms >= :since_ms
GROUP BY uuid;

-- name: activity_of
SELECT sum(scans), sum(commits) FROM table_activity
WHERE uuid = :uuid AND hour_ms >= :since_ms;

-- name: forget_activity
DELETE FROM table_activity WHERE hour_ms < :before_ms;
