-- What applications have added to this store, and up to which version.
CREATE TABLE extension_versions (
    extension  TEXT NOT NULL,
    version    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (extension, version)
);
