-- The record in the terms of Agno: sessions with their runs in one array, the registry of agents, memories, learnings
-- and metrics. Sessions are all threads except imported traces. A key of the caller is unique only within a project, so
-- such views also have the column `project`. Differs from PostgreSQL: it uses the tables behind the views `runs` and
-- `stitches`, to find the stitches of a run by its number. JSON is text, and a subquery orders the elements of an
-- array.

-- Added: the citations in the answer of a run. Empty by default; an application can replace this view.
CREATE VIEW lens_citations AS
SELECT NULL AS run_id, 0 AS place, NULL AS citation WHERE false;

-- Added: one row per run, from which the arrays are built.
CREATE VIEW agno_runs AS
SELECT r.id AS run_id,
       r.parent_run_id,
       t.id AS thread_id,
       r.sequence,
       r.turn,
       -- True for a further run of a leader within a turn, which has no input.
       coalesce(r.state ->> '$.compiles', 0) AS compiles,
       CASE r.status WHEN 'waiting' THEN 'PAUSED' ELSE upper(r.status) END AS status,
       json_object(
           'run_id', r.id, 'session_id', coalesce(t.key, t.id), 'parent_run_id', r.parent_run_id,
           'team_id', CASE WHEN r.role = 'team' THEN r.agent END, 'team_name', CASE WHEN r.role = 'team' THEN r.agent END,
           'agent_id', CASE WHEN r.role = 'agent' THEN r.agent END,
           'agent_name', CASE WHEN r.role = 'agent' THEN r.agent END,
           'workflow_id', CASE WHEN r.role = 'workflow' THEN r.agent END,
           'status', CASE r.status WHEN 'waiting' THEN 'PAUSED' ELSE upper(r.status) END,
           -- JSON as text inside of JSON, as in Agno. The || makes it text for SQLite too.
           'input', '' || json_object('input_content', (SELECT l.text FROM lens_texts l
                                                        WHERE l.thread_id = t.id AND l.position = r.input_position)),
           'content', CASE WHEN r.output IS NOT NULL THEN json(r.output)
                      ELSE (SELECT l.answer FROM lens_texts l
                            WHERE l.thread_id = t.id AND l.position = r.output_position) END,
           'content_type', CASE WHEN r.output IS NOT NULL THEN 'dict' ELSE 'str' END,
           'metrics', json_object(
               'input_tokens', r.input_tokens, 'output_tokens', r.output_tokens,
               'total_tokens', r.input_tokens + r.output_tokens, 'cache_read_tokens', r.cache_read_tokens,
               'cache_write_tokens', r.cache_write_tokens, 'cost', r.total_cost, 'steps', r.steps, 'model', r.model,
               'duration', round((julianday(r.completed_at) - julianday(r.started_at)) * 86400, 3)),
           'events', json((SELECT json_group_array(json(event))
                           FROM (SELECT json_object('event', CASE WHEN r.role = 'team' THEN 'Team' ELSE '' END || e.event,
                                                    'created_at', unixepoch(substr(e.at, 1, 19)), 'tool_call_id', e.call_id,
                                                    'tool_name', e.name) AS event
                                 FROM (SELECT s.position, 0 AS place, 0 AS call_index, s.at, NULL AS call_id, NULL AS name,
                                              CASE s.type WHEN 'run_started' THEN 'RunStarted'
                                                   WHEN 'llm_call' THEN 'RunContent'
                                                   WHEN 'run_paused' THEN 'RunPaused' WHEN 'run_resumed' THEN 'RunContinued'
                                                   WHEN 'run_failed' THEN 'RunError'
                                                   ELSE CASE s.status WHEN 'cancelled' THEN 'RunCancelled'
                                                        ELSE 'RunCompleted' END
                                              END AS event
                                       FROM main.stitch_rows s
                                       WHERE s.run_no = r.no AND s.type IN ('run_started', 'llm_call', 'run_paused',
                                                                            'run_resumed', 'run_failed', 'run_completed')
                                       UNION ALL
                                       SELECT s.reply_to, 1, s.call_index,
                                              strftime('%Y-%m-%dT%H:%M:%fZ', s.at,
                                                       (-coalesce(s.duration_ms, 0) / 1000.0) || ' seconds'),
                                              s.call_id, s.name, 'ToolCallStarted'
                                       FROM main.stitch_rows s WHERE s.run_no = r.no AND s.type = 'tool_call'
                                       UNION ALL
                                       SELECT s.position, 0, s.call_index, s.at, s.call_id, s.name,
                                              CASE WHEN s.status IN ('ok', 'settled') THEN 'ToolCallCompleted'
                                                   ELSE 'ToolCallError' END
                                       FROM main.stitch_rows s WHERE s.run_no = r.no AND s.type = 'tool_call') AS e
                                 ORDER BY e.position, e.place, e.call_index))),
           'model', r.model, 'model_provider', r.provider,
           'citations', json((SELECT CASE WHEN count(*) > 0
                                          THEN json_object('documents', json_group_array(json(citation))) END
                              FROM (SELECT c.citation FROM lens_citations c WHERE c.run_id = r.id ORDER BY c.place))),
           'created_at', unixepoch(substr(r.started_at, 1, 19))) AS run,
       -- All messages of the run, independent of later compactions, after its initial instructions.
       (SELECT '[' || coalesce(said.system || iif(said.history = '[]', '', ','), '') || substr(said.history, 2)
        FROM (SELECT (SELECT json_object('role', 'system', 'content', CAST(b.content AS TEXT))
                      FROM lens_requests q JOIN main.blobs b ON b.sha256 = q.request ->> '$.system'
                      WHERE q.run_id = r.id) AS system,
                     coalesce((SELECT h.messages FROM lens_history h WHERE h.run_id = r.id), '[]') AS history) AS said)
           AS messages
FROM main.run_rows r JOIN main.threads t ON t.no = r.thread_no
WHERE t.kind <> 'trace';

CREATE VIEW agno_sessions AS
SELECT session_id, role AS session_type,
       CASE WHEN role = 'agent' THEN agent END AS agent_id,
       CASE WHEN role = 'team' THEN agent END AS team_id,
       CASE WHEN role = 'workflow' THEN agent END AS workflow_id,
       user_id,
       json_object('session_state', json(extras), 'session_name', title) AS session_data,
       CASE WHEN role = 'agent' THEN json_object('id', agent, 'name', agent, 'model', settings ->> '$.model') END
           AS agent_data,
       CASE WHEN role = 'team' THEN json_object('id', agent, 'name', agent, 'model', settings ->> '$.model') END
           AS team_data,
       CASE WHEN role = 'workflow' THEN json_object('id', agent, 'name', agent, 'model', settings ->> '$.model') END
           AS workflow_data,
       -- The runs of members are in the array too, and again, without messages, in the run that delegated to them.
       (SELECT json_group_array(json(run))
        FROM (SELECT json_set(a.run, '$.messages', json(a.messages), '$.member_responses',
                              json((SELECT json_group_array(json(run))
                                    FROM (SELECT m.run FROM agno_runs m WHERE m.parent_run_id = a.run_id AND NOT m.compiles
                                          ORDER BY m.sequence)))) AS run
              FROM agno_runs a WHERE a.thread_id = id ORDER BY a.sequence)) AS runs,
       -- The summary that the model wrote of a chat, or the result of a goal.
       coalesce(state -> '$.summary', result) AS summary,
       unixepoch(substr(created_at, 1, 19)) AS created_at,
       unixepoch(substr(updated_at, 1, 19)) AS updated_at,
       project
FROM (SELECT coalesce(t.key, t.id) AS session_id, t.id, t.project, t.agent, t.user_id, t.extras, t.title, t.settings, t.result, t.state,
             t.created_at, t.updated_at,
             coalesce((SELECT a.role FROM main.agents a WHERE a.project = t.project AND a.name = t.agent),
                      (SELECT r.role FROM main.run_rows r WHERE r.thread_no = t.no AND r.sequence = 1), 'agent') AS role
      FROM main.threads t
      WHERE t.kind <> 'trace');

CREATE VIEW agno_components AS
SELECT a.name AS component_id,
       a.role AS component_type,
       a.name,
       a.metadata ->> '$.description' AS description,
       a.version AS current_version,
       a.metadata,
       unixepoch(substr(a.created_at, 1, 19)) AS created_at,
       unixepoch(substr(a.updated_at, 1, 19)) AS updated_at,
       NULL AS deleted_at,
       a.project
FROM main.agents a;

CREATE VIEW agno_component_configs AS
SELECT v.name AS component_id,
       v.version,
       NULL AS label,
       -- Every version in the record was used, so none is a draft.
       'published' AS stage,
       v.definition AS config,
       NULL AS notes,
       unixepoch(substr(v.created_at, 1, 19)) AS created_at,
       unixepoch(substr(v.created_at, 1, 19)) AS updated_at,
       NULL AS deleted_at,
       v.project
FROM main.agent_versions v;

CREATE VIEW agno_component_links AS
SELECT l.team AS parent_component_id,
       l.version AS parent_version,
       'member' AS link_kind,
       'member_' || l.place AS link_key,
       l.member AS child_component_id,
       l.member_version AS child_version,
       l.place AS position,
       '{}' AS meta,
       unixepoch(substr(v.created_at, 1, 19)) AS created_at,
       unixepoch(substr(v.created_at, 1, 19)) AS updated_at,
       l.project
FROM main.agent_links l
LEFT JOIN main.agent_versions v ON v.project = l.project AND v.name = l.team AND v.version = l.version;

CREATE VIEW agno_memories AS
SELECT m.id AS memory_id,
       m.text AS memory,
       m.metadata ->> '$.feedback' AS feedback,
       m.metadata ->> '$.input' AS input,
       CASE WHEN a.role IS NOT 'team' THEN m.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN m.agent END AS team_id,
       m.user_id,
       m.tags AS topics,
       unixepoch(substr(m.created_at, 1, 19)) AS created_at,
       unixepoch(substr(m.updated_at, 1, 19)) AS updated_at
FROM main.memories m
LEFT JOIN main.agents a ON a.project = m.project AND a.name = m.agent
WHERE m.kind = 'memory';

CREATE VIEW agno_learnings AS
SELECT m.id AS learning_id,
       coalesce(m.metadata ->> '$.learning_type', 'learning') AS learning_type,
       m.metadata ->> '$.namespace' AS namespace,
       m.user_id,
       CASE WHEN coalesce(a.role, 'agent') = 'agent' THEN m.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN m.agent END AS team_id,
       CASE WHEN a.role = 'workflow' THEN m.agent END AS workflow_id,
       coalesce(t.key, m.thread_id) AS session_id,
       m.metadata ->> '$.entity_id' AS entity_id,
       m.metadata ->> '$.entity_type' AS entity_type,
       json_object('text', m.text, 'tags', json(m.tags)) AS content,
       m.metadata,
       unixepoch(substr(m.created_at, 1, 19)) AS created_at,
       unixepoch(substr(m.updated_at, 1, 19)) AS updated_at
FROM main.memories m
LEFT JOIN main.agents a ON a.project = m.project AND a.name = m.agent
LEFT JOIN main.threads t ON t.id = m.thread_id
WHERE m.kind = 'learning';

CREATE VIEW agno_knowledge AS
SELECT k.id,
       k.name,
       k.description,
       k.metadata,
       k.type,
       k.size,
       k.metadata ->> '$.linked_to' AS linked_to,
       CASE WHEN json_type(k.metadata, '$.access_count') IN ('integer', 'real')
            THEN CAST(k.metadata ->> '$.access_count' AS INTEGER) ELSE 0 END AS access_count,
       k.status,
       k.metadata ->> '$.status_message' AS status_message,
       k.metadata ->> '$.external_id' AS external_id,
       unixepoch(substr(k.created_at, 1, 19)) AS created_at,
       unixepoch(substr(k.updated_at, 1, 19)) AS updated_at
FROM main.knowledge k;

-- Days are in UTC. Purged runs are included as far as `daily_metrics` has them: runs and tokens by agent and model.
CREATE VIEW agno_metrics AS
WITH counted AS (
    SELECT substr(r.started_at, 1, 10) AS day, r.role, r.thread_no, t.user_id, r.model, r.provider, 1 AS runs,
           r.input_tokens, r.output_tokens, r.cache_read_tokens, r.cache_write_tokens
    FROM main.run_rows r JOIN main.threads t ON t.no = r.thread_no
    WHERE t.kind <> 'trace'
    UNION ALL
    SELECT m.day, coalesce(a.role, 'agent'), NULL, NULL, nullif(m.model, ''), NULL, m.runs,
           m.input_tokens, m.output_tokens, m.cache_read_tokens, m.cache_write_tokens
    FROM main.daily_metrics m LEFT JOIN main.agents a ON a.project = m.project AND a.name = m.agent),
models AS MATERIALIZED (
    SELECT day, model, max(provider) AS provider, sum(runs) AS runs FROM counted
    WHERE model IS NOT NULL GROUP BY day, model)
SELECT day || ' daily' AS id,
       coalesce(sum(runs) FILTER (WHERE role = 'agent'), 0) AS agent_runs_count,
       coalesce(sum(runs) FILTER (WHERE role = 'team'), 0) AS team_runs_count,
       coalesce(sum(runs) FILTER (WHERE role = 'workflow'), 0) AS workflow_runs_count,
       count(DISTINCT CASE WHEN role = 'agent' THEN thread_no END) AS agent_sessions_count,
       count(DISTINCT CASE WHEN role = 'team' THEN thread_no END) AS team_sessions_count,
       count(DISTINCT CASE WHEN role = 'workflow' THEN thread_no END) AS workflow_sessions_count,
       count(DISTINCT user_id) AS users_count,
       json_object('input_tokens', sum(input_tokens), 'output_tokens', sum(output_tokens),
                   'total_tokens', sum(input_tokens + output_tokens), 'cache_read_tokens', sum(cache_read_tokens),
                   'cache_write_tokens', sum(cache_write_tokens)) AS token_metrics,
       (SELECT json_group_array(json(used))
        FROM (SELECT json_object('model_id', m.model, 'model_provider', m.provider, 'count', m.runs) AS used
              FROM models m WHERE m.day = counted.day ORDER BY m.model))
           AS model_metrics,
       day AS date,
       'daily' AS aggregation_period,
       day < date('now') AS completed,
       unixepoch(day) AS created_at,
       unixepoch(day) AS updated_at
FROM counted
GROUP BY day;

CREATE VIEW agno_eval_runs AS
SELECT e.id AS run_id,
       e.type AS eval_type,
       e.result AS eval_data,
       e.input AS eval_input,
       e.name,
       CASE WHEN coalesce(a.role, 'agent') = 'agent' THEN e.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN e.agent END AS team_id,
       CASE WHEN a.role = 'workflow' THEN e.agent END AS workflow_id,
       coalesce(r.model, e.result ->> '$.model') AS model_id,
       coalesce(r.provider, e.result ->> '$.provider') AS model_provider,
       e.agent AS evaluated_component_name,
       unixepoch(substr(e.created_at, 1, 19)) AS created_at,
       unixepoch(substr(e.updated_at, 1, 19)) AS updated_at
FROM main.evals e
LEFT JOIN main.agents a ON a.project = e.project AND a.name = e.agent
LEFT JOIN main.run_rows r ON r.id = e.run_id;

-- The record has one version, which is also the version of every view.
CREATE VIEW agno_schema_versions AS
SELECT n.column1 AS table_name, v.version, v.created_at, v.updated_at
FROM (SELECT CAST(max(version) AS TEXT) AS version, substr(min(applied_at), 1, 19) || 'Z' AS created_at,
             substr(max(applied_at), 1, 19) || 'Z' AS updated_at
      FROM main.schema_versions) AS v
CROSS JOIN (VALUES ('agno_sessions'), ('agno_components'), ('agno_component_configs'), ('agno_component_links'),
                   ('agno_memories'), ('agno_learnings'), ('agno_knowledge'), ('agno_metrics'), ('agno_eval_runs')) AS n;
