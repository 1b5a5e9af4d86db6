-- What the server signs with: drawn once, the same for every process on this database.
CREATE TABLE secrets (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    value bytea NOT NULL
);
