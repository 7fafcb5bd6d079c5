CREATE TABLE IF NOT EXISTS shop_orders (
    id        INTEGER NOT NULL PRIMARY KEY,
    customer  TEXT NOT NULL,
    thread_id TEXT NOT NULL
);
