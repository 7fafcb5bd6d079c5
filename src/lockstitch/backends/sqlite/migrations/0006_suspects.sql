-- Which threads a dead worker held, so that each is executed alone before it counts as the reason. A worker's namespaces
-- belong to the proof of its death, and `uptime` is the time of its last heartbeat on the clock of this host.
ALTER TABLE threads ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN lost_by TEXT;
ALTER TABLE threads ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;
-- Until now it counted claims.
UPDATE threads SET crashes = 0 WHERE crashes <> 0;
CREATE INDEX threads_suspects ON threads (losses DESC, priority DESC, wake_at, id)
    WHERE status = 'pending' AND lost_by IS NOT NULL;

ALTER TABLE workers ADD COLUMN pid_namespace TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN time_namespace TEXT NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN uptime REAL;
ALTER TABLE workers ADD COLUMN end_cause TEXT;
