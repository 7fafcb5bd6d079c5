-- The role for SQL of users: it owns nothing and can read the record. It cannot log in. Each process that runs such SQL
-- creates a login that is a member of it; `reader.py` explains why. If the right to create roles is missing, this
-- script is undone, and SQL of users needs a login that an administrator has created.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'lockstitch_reader') THEN
        CREATE ROLE lockstitch_reader NOLOGIN;
    END IF;
    IF NOT pg_catalog.pg_has_role('lockstitch_reader', 'USAGE') THEN
        GRANT lockstitch_reader TO CURRENT_USER;
    END IF;
END $$;
-- Its members log in. Every role may connect, unless an administrator has revoked that right from PUBLIC.
DO $$ BEGIN
    IF NOT pg_catalog.has_database_privilege('lockstitch_reader', pg_catalog.current_database(), 'CONNECT') THEN
        EXECUTE pg_catalog.format('GRANT CONNECT ON DATABASE %I TO lockstitch_reader', pg_catalog.current_database());
    END IF;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$;
GRANT USAGE ON SCHEMA lockstitch TO lockstitch_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA lockstitch TO lockstitch_reader;
-- A lake compares the last log_id.
GRANT SELECT ON ALL SEQUENCES IN SCHEMA lockstitch TO lockstitch_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA lockstitch GRANT SELECT ON TABLES TO lockstitch_reader;
