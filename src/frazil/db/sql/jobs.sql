-- The statements about jobs of maintenance. Both databases share them.

-- name: insert_job
-- The id of a request that is repeated with its key exists already.
INSERT INTO jobs
    (job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
     attempts, cancel_requested, created_ms)
VALUES
    (:job_id, :uuid, :namespace, :name, :operation, :options, :dry_run, 'queued', :started_by,
     :principal, 0, 0, :now_ms)
ON CONFLICT DO NOTHING;

-- name: job
SELECT job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
    worker, progress, result, error, attempts, cancel_requested, created_ms, started_ms,
    heartbeat_ms, finished_ms
FROM jobs WHERE job_id = :job_id;

-- name: jobs_of_table
-- A page, newest first.
SELECT job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
    worker, progress, result, error, attempts, cancel_requested, created_ms, started_ms,
    heartbeat_ms, finished_ms
FROM jobs
WHERE uuid = :uuid AND (created_ms < :before_ms OR (created_ms = :before_ms AND job_id < :before))
ORDER BY created_ms DESC, job_id DESC LIMIT :limit;

-- name: all_jobs
SELECT job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
    worker, progress, result, error, attempts, cancel_requested, created_ms, started_ms,
    heartbeat_ms, finished_ms
FROM jobs
WHERE created_ms < :before_ms OR (created_ms = :before_ms AND job_id < :before)
ORDER BY created_ms DESC, job_id DESC LIMIT :limit;

-- name: open_jobs
-- The jobs that may be claimed: nobody runs them, or their worker has not been heard of.
SELECT job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
    worker, progress, result, error, attempts, cancel_requested, created_ms, started_ms,
    heartbeat_ms, finished_ms
FROM jobs
WHERE state = 'queued' OR (state = 'running' AND heartbeat_ms <= :silent_ms)
ORDER BY created_ms, job_id LIMIT :limit;

-- name: job_of_worker
SELECT job_id, uuid, namespace, name, operation, options, dry_run, state, started_by, principal,
    worker, progress, result, error, attempts, cancel_requested, created_ms, started_ms,
    heartbeat_ms, finished_ms
FROM jobs WHERE state = 'running' AND worker = :worker;

-- name: take_job_lock
-- One statement decides which worker has the lock, also between processes.
INSERT INTO job_locks (uuid, exclusion, job_id, worker, heartbeat_ms)
VALUES (:uuid, :exclusion, :job_id, :worker, :now_ms)
ON CONFLICT (uuid, exclusion) DO UPDATE
SET job_id = excluded.job_id, worker = excluded.worker, heartbeat_ms = excluded.heartbeat_ms
WHERE job_locks.heartbeat_ms <= :silent_ms OR job_locks.worker = excluded.worker;

-- name: job_lock
SELECT job_id, worker, heartbeat_ms FROM job_locks
WHERE uuid = :uuid AND exclusion = :exclusion;

-- name: renew_job_lock
UPDATE job_locks SET heartbeat_ms = :now_ms WHERE job_id = :job_id AND worker = :worker;

-- name: drop_job_lock
DELETE FROM job_locks WHERE job_id = :job_id AND worker = :worker;

-- name: start_job
UPDATE jobs
SET state = 'running', worker = :worker, attempts = attempts + 1, progress = NULL,
    started_ms = coalesce(started_ms, :now_ms), heartbeat_ms = :now_ms
WHERE job_id = :job_id
    AND (state = 'queued' OR (state = 'running' AND heartbeat_ms <= :silent_ms));

-- name: beat_job
UPDATE jobs SET heartbeat_ms = :now_ms, progress = coalesce(:progress, progress)
WHERE job_id = :job_id AND worker = :worker AND state = 'running';

-- name: end_job
UPDATE jobs
SET state = :state, progress = coalesce(:progress, progress), result = :result, error = :error,
    finished_ms = :now_ms
WHERE job_id = :job_id AND worker = :worker AND state = 'running';

-- name: requeue_job
-- A worker that stops gives its job back.
UPDATE jobs SET state = 'queued', worker = NULL, attempts = attempts - 1
WHERE job_id = :job_id AND worker = :worker AND state = 'running';

-- name: cancel_queued_job
UPDATE jobs SET state = 'cancelled', cancel_requested = 1, finished_ms = :now_ms
WHERE job_id = :job_id AND state = 'queued';

-- name: ask_to_cancel_job
UPDATE jobs SET cancel_requested = 1 WHERE job_id = :job_id AND state = 'running';

-- name: open_job_counts
SELECT operation, state, count(*) FROM jobs WHERE state IN ('queued', 'running')
GROUP BY operation, state;

-- name: forget_jobs
DELETE FROM jobs WHERE finished_ms < :before_ms;

-- name: doomed_file_totals
-- What waits for deletion, and what of it is due.
SELECT count(*), CAST(coalesce(sum(size_bytes), 0) AS bigint),
    count(CASE WHEN delete_after_ms <= :now_ms OR state = 'deleting' THEN 1 END)
FROM doomed_files WHERE uuid = :uuid;

-- name: expired_snapshot_totals
SELECT count(*), count(CASE WHEN delete_after_ms <= :now_ms OR state = 'deleting' THEN 1 END)
FROM expired_snapshots WHERE uuid = :uuid;

-- name: ended_intent_count
SELECT count(*) FROM intents
WHERE uuid = :uuid AND (state = 'ended' OR (state = 'live' AND expires_ms <= :now_ms));

-- name: doomed_totals
SELECT count(*), CAST(coalesce(sum(size_bytes), 0) AS bigint) FROM doomed_files;

-- name: expired_totals
SELECT count(*) FROM expired_snapshots;
