"""Many rows, created in the database: threads of twenty stitches besides those of the tests."""

import sqlite3

import psycopg

THREADS = 500
AT = "2026-01-01T00:00:00.000000Z"
ID = "01890000-0000-7000-8000-"
MESSAGE = '{"role":"assistant","content":[{"type":"text","text":"Something was said."}]}'

_SQLITE = f"""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {THREADS})
INSERT INTO threads (id, project, kind, status, depth, tasks, waiting_for, state, settings, extras, position,
    context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered, pending_children,
    cancel_requested, priority, crashes, created_at, updated_at)
SELECT printf('{ID}%012d', i), 'default', 'chat', 'waiting', 0, '[]', '[]', '{{}}', '{{}}', '{{}}', 20, 0, 1, 1, 1, 1,
    0, 0, 0, 0, 0, 0, '{AT}', '{AT}' FROM n;
INSERT INTO run_rows (id, thread_no, sequence, turn, role, status, first_position, input_position, output_position,
    state, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost, steps, tags, metadata, extras,
    source, started_at)
SELECT id, no, 1, 1, 'agent', 'completed', 1, 1, 20, '{{}}', 1, 1, 0, 0, '{{}}', 1, '[]', '{{}}', '{{}}', 'native',
    '{AT}' FROM threads WHERE id LIKE '{ID}%';
INSERT INTO stitch_rows (thread_no, position, id, run_no, previous, fence, type, message, data, at)
SELECT t.no, p.value, printf('01890000-0000-7000-9%03d-', p.value) || substr(t.id, 25), r.no,
    iif(p.value > 2, p.value - 1, NULL), 0,
    CASE p.value WHEN 1 THEN 'input' ELSE 'llm_call' END, '{MESSAGE}', '{{}}', '{AT}'
FROM threads t JOIN run_rows r ON r.thread_no = t.no,
    json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]') p
WHERE t.id LIKE '{ID}%';
ANALYZE;
"""

_POSTGRES = (
    f"""INSERT INTO lockstitch.threads (id, project, kind, status, depth, tasks, waiting_for, state, settings, extras,
    position, context_from, first_position, last_sequence, last_turn, total_runs, fence, delivered, pending_children,
    cancel_requested, priority, crashes, created_at, updated_at)
SELECT ('{ID}' || lpad(i::text, 12, '0'))::uuid, 'default', 'chat', 'waiting', 0, '[]', '[]', '{{}}', '{{}}', '{{}}',
    20, 0, 1, 1, 1, 1, 0, 0, 0, false, 0, 0, '{AT}', '{AT}' FROM generate_series(1, {THREADS}) i""",
    f"""INSERT INTO lockstitch.runs (id, thread_id, sequence, turn, role, status, first_position, input_position,
    output_position, state, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost, steps, tags,
    metadata, extras, source, started_at)
SELECT id, id, 1, 1, 'agent', 'completed', 1, 1, 20, '{{}}', 1, 1, 0, 0, '{{}}', 1, '[]', '{{}}', '{{}}', 'native',
    '{AT}' FROM lockstitch.threads WHERE id::text LIKE '{ID}%'""",
    f"""INSERT INTO lockstitch.stitches (thread_id, position, id, run_id, previous_id, fence, type, message, data, at)
SELECT t.id, p, ('01890000-0000-7000-9' || lpad(p::text, 3, '0') || '-' || substr(t.id::text, 25))::uuid, t.id,
    CASE WHEN p > 2
         THEN ('01890000-0000-7000-9' || lpad((p - 1)::text, 3, '0') || '-' || substr(t.id::text, 25))::uuid END,
    0, CASE p WHEN 1 THEN 'input' ELSE 'llm_call' END, '{MESSAGE}', '{{}}', '{AT}'
FROM lockstitch.threads t, generate_series(1, 20) p WHERE t.id::text LIKE '{ID}%'""",
    "ANALYZE lockstitch.threads",
    "ANALYZE lockstitch.runs",
    "ANALYZE lockstitch.stitches",
)


def fill(url: str) -> None:
    """Create the rows in an existing store on SQLite or PostgreSQL."""
    if url.startswith("sqlite:"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.executescript(_SQLITE)
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _POSTGRES:
            connection.execute(statement.encode())
