-- The data of imported stitches, compressed. Spans repeat ids, names and resources, and few queries read them. A row has
-- a line for each of some stitches of a thread: the position, and JSON. Members that lenses read for many rows are in
-- `stitch_rows.data`, too. Connections of Lockstitch have a temporary view `stitches` with the complete data. The view of
-- the file has only those members.
CREATE TABLE packed_data (
    no             INTEGER PRIMARY KEY,
    thread_no      INTEGER NOT NULL REFERENCES threads (no) ON DELETE CASCADE,
    -- Of the stitches that the row was written for. Some of them may have newer data in another row.
    first_position INTEGER NOT NULL,
    last_position  INTEGER NOT NULL,
    content        BLOB NOT NULL
);
CREATE INDEX packed_data_thread ON packed_data (thread_no);
-- The row of packed_data. NULL if `data` is complete.
ALTER TABLE stitch_rows ADD COLUMN packed INTEGER;
