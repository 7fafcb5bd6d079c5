-- What applications have added to this store, and up to which version.
CREATE TABLE extension_versions (
    extension  text NOT NULL,
    version    bigint NOT NULL,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (extension, version)
);
