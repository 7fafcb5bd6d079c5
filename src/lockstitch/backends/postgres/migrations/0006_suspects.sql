-- Which threads a dead worker held, so that each is executed alone before it counts as the reason. A worker's namespaces
-- belong to the proof of its death. `uptime` is for stores of one host; here the database's clock judges leases.
ALTER TABLE threads ADD COLUMN losses bigint NOT NULL DEFAULT 0;
ALTER TABLE threads ADD COLUMN lost_by uuid;
ALTER TABLE threads ADD COLUMN alone boolean NOT NULL DEFAULT false;
-- Until now it counted claims.
UPDATE threads SET crashes = 0 WHERE crashes <> 0;
CREATE INDEX threads_suspects ON threads (losses DESC, priority DESC, wake_at, id)
    WHERE status = 'pending' AND lost_by IS NOT NULL;

ALTER TABLE workers ADD COLUMN pid_namespace text NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN time_namespace text NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN uptime double precision;
ALTER TABLE workers ADD COLUMN end_cause text;
