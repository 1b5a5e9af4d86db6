-- Which job of a table runs, of those that exclude each other. The primary key decides.
CREATE TABLE job_locks (
    uuid TEXT NOT NULL,
    exclusion TEXT NOT NULL,
    job_id TEXT NOT NULL,
    worker TEXT NOT NULL,
    heartbeat_ms INTEGER NOT NULL,
    PRIMARY KEY (uuid, exclusion)
);

CREATE INDEX job_locks_by_job ON job_locks (job_id);
