CREATE TABLE orders (
    id         INTEGER PRIMARY KEY,
    thread_id  TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    customer   TEXT NOT NULL UNIQUE,
    state      TEXT NOT NULL CHECK (state IN ('open', 'paid')),
    paid       INTEGER NOT NULL,
    items      TEXT NOT NULL,
    ordered_at TEXT NOT NULL
);
