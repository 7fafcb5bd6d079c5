-- Who asks SQL for people: a role that owns nothing, and the function through which it asks. What may be missing is the
-- right to make roles; then this is undone, and queries run as whoever connects, held by their read-only transaction.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'lockstitch_reader') THEN
        CREATE ROLE lockstitch_reader NOLOGIN;
    END IF;
    IF NOT pg_catalog.pg_has_role('lockstitch_reader', 'USAGE') THEN
        GRANT lockstitch_reader TO CURRENT_USER;
    END IF;
END $$;
GRANT USAGE ON SCHEMA lockstitch TO lockstitch_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO lockstitch_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA lockstitch GRANT SELECT ON TABLES TO lockstitch_reader;

-- Asking as that role would not be enough: a query may call set_config('role', 'none', true) and then, in a text that is
-- only parsed when it runs (query_to_xml), whatever the one who connected may do. While a function runs with the rights
-- of its owner, PostgreSQL refuses to change the role, however deep inside.
CREATE OR REPLACE FUNCTION lockstitch.ask(query text, most bigint) RETURNS SETOF record
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    asked refcursor;
    answer record;
BEGIN
    OPEN asked NO SCROLL FOR EXECUTE query;
    FOR number IN 1 .. most LOOP
        FETCH asked INTO answer;
        EXIT WHEN NOT FOUND;
        RETURN NEXT answer;
    END LOOP;
    CLOSE asked;
END $$;
REVOKE ALL ON FUNCTION lockstitch.ask(text, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION lockstitch.ask(text, bigint) TO CURRENT_USER;
-- Only who may create in a schema may own something there.
GRANT CREATE ON SCHEMA lockstitch TO lockstitch_reader;
ALTER FUNCTION lockstitch.ask(text, bigint) OWNER TO lockstitch_reader;
REVOKE CREATE ON SCHEMA lockstitch FROM lockstitch_reader;
