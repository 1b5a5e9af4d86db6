-- What a stream has committed to a branch of a table: the highest epoch and the answer to it. The
-- rows go with the table.
CREATE TABLE streams (
    uuid TEXT NOT NULL REFERENCES relations (uuid) ON DELETE CASCADE,
    branch TEXT NOT NULL,
    stream TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    committed BLOB NOT NULL,
    PRIMARY KEY (uuid, branch, stream)
) WITHOUT ROWID;
