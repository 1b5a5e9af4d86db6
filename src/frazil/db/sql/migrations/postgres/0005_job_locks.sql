-- Which job of a table runs, of those that exclude each other. The primary key decides.
CREATE TABLE job_locks (
    uuid text COLLATE "C" NOT NULL,
    exclusion text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    worker text COLLATE "C" NOT NULL,
    heartbeat_ms bigint NOT NULL,
    PRIMARY KEY (uuid, exclusion)
);

CREATE INDEX job_locks_by_job ON job_locks (job_id);
