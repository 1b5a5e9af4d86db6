-- What a stream has committed to a branch of a table: the highest epoch and the answer to it. The
-- rows go with the table; a row's epoch is not indexed, so that an update stays on its page.
CREATE TABLE streams (
    uuid text COLLATE "C" NOT NULL REFERENCES relations (uuid) ON DELETE CASCADE,
    branch text COLLATE "C" NOT NULL,
    stream text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    committed bytea NOT NULL,
    PRIMARY KEY (uuid, branch, stream)
) WITH (fillfactor = 70);
