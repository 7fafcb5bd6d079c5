-- The record in the terms of Agno: sessions with their runs in one array, the registry of agents, memories, learnings
-- and metrics. Sessions are all threads except imported traces. A key of the caller is unique only within a project, so
-- such views also have the column `project`. Arrays are built at query time, ordered by sequence, because seconds do
-- not order the runs of one message.

-- Added: the citations in the answer of a run. Empty by default; an application can replace this view.
CREATE VIEW lens_citations AS
SELECT NULL::uuid AS run_id, 0::bigint AS place, NULL::jsonb AS citation WHERE false;

-- Added: one row per run, from which the arrays are built.
CREATE VIEW agno_runs AS
SELECT r.id AS run_id,
       r.parent_run_id,
       r.thread_id,
       r.sequence,
       r.turn,
       -- True for a further run of a leader within a turn, which has no input.
       coalesce((r.state ->> 'compiles')::boolean, false) AS compiles,
       CASE r.status WHEN 'waiting' THEN 'PAUSED' ELSE upper(r.status) END AS status,
       jsonb_build_object(
           'run_id', r.id, 'session_id', coalesce(t.key, t.id::text), 'parent_run_id', r.parent_run_id,
           'team_id', CASE WHEN r.role = 'team' THEN r.agent END, 'team_name', CASE WHEN r.role = 'team' THEN r.agent END,
           'agent_id', CASE WHEN r.role = 'agent' THEN r.agent END,
           'agent_name', CASE WHEN r.role = 'agent' THEN r.agent END,
           'workflow_id', CASE WHEN r.role = 'workflow' THEN r.agent END,
           'status', CASE r.status WHEN 'waiting' THEN 'PAUSED' ELSE upper(r.status) END,
           -- JSON as text inside of JSON, as in Agno.
           'input', jsonb_build_object('input_content', lockstitch.text_at(r.thread_id, r.input_position))::text,
           'content', CASE WHEN r.output IS NOT NULL THEN lockstitch.safe_jsonb(r.output)
                      ELSE to_jsonb(lockstitch.answer_at(r.thread_id, r.output_position)) END,
           'content_type', CASE WHEN r.output IS NOT NULL THEN 'dict' ELSE 'str' END,
           'metrics', jsonb_build_object(
               'input_tokens', r.input_tokens, 'output_tokens', r.output_tokens,
               'total_tokens', r.input_tokens + r.output_tokens, 'cache_read_tokens', r.cache_read_tokens,
               'cache_write_tokens', r.cache_write_tokens, 'cost', r.total_cost, 'steps', r.steps, 'model', r.model,
               'duration', round(extract(epoch FROM r.completed_at - r.started_at), 3)),
           'events', (SELECT coalesce(jsonb_agg(jsonb_build_object(
                                 'event', CASE WHEN r.role = 'team' THEN 'Team' ELSE '' END || e.event,
                                 'created_at', floor(extract(epoch FROM e.at))::bigint, 'tool_call_id', e.call_id,
                                 'tool_name', e.name) ORDER BY e.position, e.place, e.call_index), '[]')
                      FROM (SELECT s.position, 0 AS place, 0 AS call_index, s.at, NULL AS call_id, NULL AS name,
                                   CASE s.type WHEN 'run_started' THEN 'RunStarted' WHEN 'llm_call' THEN 'RunContent'
                                        WHEN 'run_paused' THEN 'RunPaused' WHEN 'run_resumed' THEN 'RunContinued'
                                        WHEN 'run_failed' THEN 'RunError'
                                        ELSE CASE s.status WHEN 'cancelled' THEN 'RunCancelled' ELSE 'RunCompleted' END
                                   END AS event
                            FROM lockstitch.stitches s
                            WHERE s.run_id = r.id AND s.type IN ('run_started', 'llm_call', 'run_paused', 'run_resumed',
                                                                 'run_failed', 'run_completed')
                            UNION ALL
                            SELECT s.reply_to, 1, s.call_index, s.at - coalesce(s.duration_ms, 0) * interval '1 ms',
                                   s.call_id, s.name, 'ToolCallStarted'
                            FROM lockstitch.stitches s WHERE s.run_id = r.id AND s.type = 'tool_call'
                            UNION ALL
                            SELECT s.position, 0, s.call_index, s.at, s.call_id, s.name,
                                   CASE WHEN s.status IN ('ok', 'settled') THEN 'ToolCallCompleted'
                                        ELSE 'ToolCallError' END
                            FROM lockstitch.stitches s WHERE s.run_id = r.id AND s.type = 'tool_call') AS e),
           'model', r.model, 'model_provider', r.provider,
           'citations', (SELECT CASE WHEN count(*) > 0
                                     THEN jsonb_build_object('documents', jsonb_agg(c.citation ORDER BY c.place)) END
                         FROM lens_citations c WHERE c.run_id = r.id),
           'created_at', floor(extract(epoch FROM r.started_at))::bigint) AS run,
       -- All messages of the run, independent of later compactions, after its initial instructions.
       lockstitch.merged(coalesce((
           SELECT jsonb_build_array(jsonb_build_object('role', 'system', 'content', said.text))
           FROM (SELECT lockstitch.kept_text(lockstitch.run_request(r.id) ->> 'system')) AS said (text)
           WHERE said.text IS NOT NULL), '[]'), lockstitch.safe_jsonb(lockstitch.history(r.id))) AS messages
FROM lockstitch.runs r JOIN lockstitch.threads t ON t.id = r.thread_id
WHERE t.kind <> 'trace';

CREATE VIEW agno_sessions AS
SELECT coalesce(t.key, t.id::text) AS session_id,
       who.role AS session_type,
       CASE WHEN who.role = 'agent' THEN t.agent END AS agent_id,
       CASE WHEN who.role = 'team' THEN t.agent END AS team_id,
       CASE WHEN who.role = 'workflow' THEN t.agent END AS workflow_id,
       t.user_id,
       jsonb_build_object('session_state', lockstitch.safe_jsonb(t.extras), 'session_name', t.title) AS session_data,
       CASE WHEN who.role = 'agent' THEN who.data END AS agent_data,
       CASE WHEN who.role = 'team' THEN who.data END AS team_data,
       CASE WHEN who.role = 'workflow' THEN who.data END AS workflow_data,
       -- The runs of members are in the array too, and again, without messages, in the run that delegated to them.
       (SELECT coalesce(jsonb_agg(lockstitch.merged(a.run, jsonb_build_object(
                   'messages', a.messages,
                   'member_responses', (SELECT coalesce(jsonb_agg(m.run ORDER BY m.sequence), '[]') FROM agno_runs m
                                        WHERE m.parent_run_id = a.run_id AND NOT m.compiles)))
                   ORDER BY a.sequence), '[]')
        FROM agno_runs a WHERE a.thread_id = t.id) AS runs,
       -- The summary that the model wrote of a chat, or the result of a goal.
       coalesce(lockstitch.safe_jsonb(t.state) -> 'summary', lockstitch.safe_jsonb(t.result)) AS summary,
       floor(extract(epoch FROM t.created_at))::bigint AS created_at,
       floor(extract(epoch FROM t.updated_at))::bigint AS updated_at,
       t.project
FROM lockstitch.threads t
CROSS JOIN LATERAL
    (SELECT coalesce((SELECT a.role FROM lockstitch.agents a WHERE a.project = t.project AND a.name = t.agent),
                     (SELECT r.role FROM lockstitch.runs r WHERE r.thread_id = t.id AND r.sequence = 1), 'agent') AS role,
            jsonb_build_object('id', t.agent, 'name', t.agent,
                               'model', lockstitch.safe_jsonb(t.settings) -> 'model') AS data
     -- An optimization fence: the role is read once per row.
     OFFSET 0) AS who
WHERE t.kind <> 'trace';

CREATE VIEW agno_components AS
SELECT a.name AS component_id,
       a.role AS component_type,
       a.name,
       lockstitch.safe_jsonb(a.metadata) ->> 'description' AS description,
       a.version AS current_version,
       lockstitch.safe_jsonb(a.metadata) AS metadata,
       floor(extract(epoch FROM a.created_at))::bigint AS created_at,
       floor(extract(epoch FROM a.updated_at))::bigint AS updated_at,
       NULL::bigint AS deleted_at,
       a.project
FROM lockstitch.agents a;

CREATE VIEW agno_component_configs AS
SELECT v.name AS component_id,
       v.version,
       NULL::text AS label,
       -- Every version in the record was used, so none is a draft.
       'published' AS stage,
       lockstitch.safe_jsonb(v.definition) AS config,
       NULL::text AS notes,
       floor(extract(epoch FROM v.created_at))::bigint AS created_at,
       floor(extract(epoch FROM v.created_at))::bigint AS updated_at,
       NULL::bigint AS deleted_at,
       v.project
FROM lockstitch.agent_versions v;

CREATE VIEW agno_component_links AS
SELECT l.team AS parent_component_id,
       l.version AS parent_version,
       'member' AS link_kind,
       'member_' || l.place AS link_key,
       l.member AS child_component_id,
       l.member_version AS child_version,
       l.place AS position,
       '{}'::jsonb AS meta,
       floor(extract(epoch FROM v.created_at))::bigint AS created_at,
       floor(extract(epoch FROM v.created_at))::bigint AS updated_at,
       l.project
FROM lockstitch.agent_links l
LEFT JOIN lockstitch.agent_versions v ON v.project = l.project AND v.name = l.team AND v.version = l.version;

CREATE VIEW agno_memories AS
SELECT m.id::text AS memory_id,
       m.text AS memory,
       lockstitch.safe_jsonb(m.metadata) ->> 'feedback' AS feedback,
       lockstitch.safe_jsonb(m.metadata) ->> 'input' AS input,
       CASE WHEN a.role IS DISTINCT FROM 'team' THEN m.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN m.agent END AS team_id,
       m.user_id,
       lockstitch.safe_jsonb(m.tags) AS topics,
       floor(extract(epoch FROM m.created_at))::bigint AS created_at,
       floor(extract(epoch FROM m.updated_at))::bigint AS updated_at
FROM lockstitch.memories m
LEFT JOIN lockstitch.agents a ON a.project = m.project AND a.name = m.agent
WHERE m.kind = 'memory';

CREATE VIEW agno_learnings AS
SELECT m.id::text AS learning_id,
       coalesce(lockstitch.safe_jsonb(m.metadata) ->> 'learning_type', 'learning') AS learning_type,
       lockstitch.safe_jsonb(m.metadata) ->> 'namespace' AS namespace,
       m.user_id,
       CASE WHEN coalesce(a.role, 'agent') = 'agent' THEN m.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN m.agent END AS team_id,
       CASE WHEN a.role = 'workflow' THEN m.agent END AS workflow_id,
       coalesce(t.key, m.thread_id::text) AS session_id,
       lockstitch.safe_jsonb(m.metadata) ->> 'entity_id' AS entity_id,
       lockstitch.safe_jsonb(m.metadata) ->> 'entity_type' AS entity_type,
       jsonb_build_object('text', m.text, 'tags', lockstitch.safe_jsonb(m.tags)) AS content,
       lockstitch.safe_jsonb(m.metadata) AS metadata,
       floor(extract(epoch FROM m.created_at))::bigint AS created_at,
       floor(extract(epoch FROM m.updated_at))::bigint AS updated_at
FROM lockstitch.memories m
LEFT JOIN lockstitch.agents a ON a.project = m.project AND a.name = m.agent
LEFT JOIN lockstitch.threads t ON t.id = m.thread_id
WHERE m.kind = 'learning';

CREATE VIEW agno_knowledge AS
SELECT k.id::text AS id,
       k.name,
       k.description,
       lockstitch.safe_jsonb(k.metadata) AS metadata,
       k.type,
       k.size,
       lockstitch.safe_jsonb(k.metadata) ->> 'linked_to' AS linked_to,
       CASE WHEN jsonb_typeof(lockstitch.safe_jsonb(k.metadata) -> 'access_count') = 'number'
            THEN (lockstitch.safe_jsonb(k.metadata) ->> 'access_count')::numeric::bigint ELSE 0 END AS access_count,
       k.status,
       lockstitch.safe_jsonb(k.metadata) ->> 'status_message' AS status_message,
       lockstitch.safe_jsonb(k.metadata) ->> 'external_id' AS external_id,
       floor(extract(epoch FROM k.created_at))::bigint AS created_at,
       floor(extract(epoch FROM k.updated_at))::bigint AS updated_at
FROM lockstitch.knowledge k;

-- Days are in UTC. Purged runs are included as far as `daily_metrics` has them: runs and tokens by agent and model.
CREATE VIEW agno_metrics AS
WITH counted AS (
    SELECT (r.started_at AT TIME ZONE 'UTC')::date AS day, r.role, r.thread_id, t.user_id, r.model, r.provider, 1 AS runs,
           r.input_tokens, r.output_tokens, r.cache_read_tokens, r.cache_write_tokens
    FROM lockstitch.runs r JOIN lockstitch.threads t ON t.id = r.thread_id
    WHERE t.kind <> 'trace'
    UNION ALL
    SELECT m.day::date, coalesce(a.role, 'agent'), NULL, NULL, nullif(m.model, ''), NULL, m.runs,
           m.input_tokens, m.output_tokens, m.cache_read_tokens, m.cache_write_tokens
    FROM lockstitch.daily_metrics m LEFT JOIN lockstitch.agents a ON a.project = m.project AND a.name = m.agent),
models AS MATERIALIZED (
    SELECT day, model, max(provider) AS provider, sum(runs) AS runs FROM counted
    WHERE model IS NOT NULL GROUP BY day, model)
SELECT day::text || ' daily' AS id,
       coalesce(sum(runs) FILTER (WHERE role = 'agent'), 0)::bigint AS agent_runs_count,
       coalesce(sum(runs) FILTER (WHERE role = 'team'), 0)::bigint AS team_runs_count,
       coalesce(sum(runs) FILTER (WHERE role = 'workflow'), 0)::bigint AS workflow_runs_count,
       count(DISTINCT thread_id) FILTER (WHERE role = 'agent') AS agent_sessions_count,
       count(DISTINCT thread_id) FILTER (WHERE role = 'team') AS team_sessions_count,
       count(DISTINCT thread_id) FILTER (WHERE role = 'workflow') AS workflow_sessions_count,
       count(DISTINCT user_id) AS users_count,
       jsonb_build_object('input_tokens', sum(input_tokens), 'output_tokens', sum(output_tokens),
                          'total_tokens', sum(input_tokens + output_tokens), 'cache_read_tokens', sum(cache_read_tokens),
                          'cache_write_tokens', sum(cache_write_tokens)) AS token_metrics,
       (SELECT coalesce(jsonb_agg(jsonb_build_object('model_id', p.model, 'model_provider', p.provider, 'count', p.runs)
                                  ORDER BY p.model, p.provider), '[]')
        FROM models p WHERE p.day = counted.day) AS model_metrics,
       day AS date,
       'daily' AS aggregation_period,
       day < (now() AT TIME ZONE 'UTC')::date AS completed,
       floor(extract(epoch FROM day))::bigint AS created_at,
       floor(extract(epoch FROM day))::bigint AS updated_at
FROM counted
GROUP BY day;

CREATE VIEW agno_eval_runs AS
SELECT e.id::text AS run_id,
       e.type AS eval_type,
       lockstitch.safe_jsonb(e.result) AS eval_data,
       lockstitch.safe_jsonb(e.input) AS eval_input,
       e.name,
       CASE WHEN coalesce(a.role, 'agent') = 'agent' THEN e.agent END AS agent_id,
       CASE WHEN a.role = 'team' THEN e.agent END AS team_id,
       CASE WHEN a.role = 'workflow' THEN e.agent END AS workflow_id,
       coalesce(r.model, lockstitch.safe_jsonb(e.result) ->> 'model') AS model_id,
       coalesce(r.provider, lockstitch.safe_jsonb(e.result) ->> 'provider') AS model_provider,
       e.agent AS evaluated_component_name,
       floor(extract(epoch FROM e.created_at))::bigint AS created_at,
       floor(extract(epoch FROM e.updated_at))::bigint AS updated_at
FROM lockstitch.evals e
LEFT JOIN lockstitch.agents a ON a.project = e.project AND a.name = e.agent
LEFT JOIN lockstitch.runs r ON r.id = e.run_id;

-- The record has one version, which is also the version of every view.
CREATE VIEW agno_schema_versions AS
SELECT n.table_name, v.version, v.created_at, v.updated_at
FROM (SELECT max(version)::text AS version, to_char(min(applied_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS created_at,
             to_char(max(applied_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS updated_at
      FROM lockstitch.schema_versions) AS v
CROSS JOIN (VALUES ('agno_sessions'), ('agno_components'), ('agno_component_configs'), ('agno_component_links'),
                   ('agno_memories'), ('agno_learnings'), ('agno_knowledge'), ('agno_metrics'), ('agno_eval_runs'))
           AS n (table_name);
