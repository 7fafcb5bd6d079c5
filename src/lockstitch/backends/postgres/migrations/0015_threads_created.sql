-- Retention reads the oldest threads, so that its cost does not grow with newer ones.
CREATE INDEX threads_created ON threads (project, created_at, id);
