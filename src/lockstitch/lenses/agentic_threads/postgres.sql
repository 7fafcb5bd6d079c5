-- threads and stitches, of the kinds chat, goal and task. A reference points to an existing row or is NULL: deleted or
-- archived rows are not a parent, child or predecessor here.

CREATE VIEW threads AS
SELECT t.id, branching.id AS branching_stitch_id,
    coalesce(t.goal, left((
        SELECT lockstitch.text_of(lockstitch.safe_jsonb(s.message)) FROM lockstitch.stitches s
        WHERE s.thread_id = t.id AND s.type = 'input' AND s.message IS NOT NULL ORDER BY s.position LIMIT 1), 200), '')
        AS goal,
    lockstitch.safe_jsonb(t.tasks) AS tasks,
    CASE t.status WHEN 'cancelled' THEN 'failed' ELSE t.status END AS status,
    CASE t.status WHEN 'cancelled' THEN lockstitch.merged(coalesce(lockstitch.safe_jsonb(t.result), '{}'), '{"cancelled": true}')
         ELSE lockstitch.safe_jsonb(t.result) END AS result,
    (SELECT coalesce(jsonb_agg(jsonb_build_object(
         'child_thread_id', letter.entry -> 'child_id', 'status', letter.entry -> 'status',
         'summary', letter.entry -> 'data' -> 'summary', 'result', letter.entry -> 'data' -> 'data') ORDER BY letter.id),
         '[]')
     FROM (SELECT i.id, lockstitch.safe_jsonb(i.entry) AS entry FROM lockstitch.inbox i
           WHERE i.thread_id = t.id AND i.position IS NULL AND i.kind = 'children') AS letter) AS pending_child_results,
    t.created_at, t.updated_at,
    t.parent_id AS parent_thread_id
FROM lockstitch.threads t
LEFT JOIN lockstitch.stitches branching ON branching.id = t.branching_stitch_id
WHERE t.kind IN ('chat', 'goal', 'task');

CREATE VIEW stitches AS
SELECT s.id, s.thread_id, before.id AS previous_stitch_id, s.type AS stitch_type,
    CASE s.type WHEN 'llm_call' THEN jsonb_build_object(
        'model', s.name,
        'settings', coalesce(lockstitch.safe_jsonb(s.data) #> '{request,parameters}',
                             lockstitch.run_request(s.run_id) -> 'parameters', '{}'),
        'tools_hash', coalesce(lockstitch.safe_jsonb(s.data) #> '{request,tools}',
                               lockstitch.run_request(s.run_id) -> 'tools'),
        'messages', jsonb_build_object('to', s.position - 1,
                                       'sha256', lockstitch.safe_jsonb(s.data) #> '{request,sha256}')) END AS llm_request,
    CASE s.type WHEN 'llm_call' THEN coalesce(lockstitch.safe_jsonb(s.message),
        CASE WHEN lockstitch.safe_jsonb(s.data) ->> 'text' IS NOT NULL THEN jsonb_build_object('role', 'assistant',
            'content', jsonb_build_array(jsonb_build_object(
                'type', 'text', 'text', lockstitch.safe_jsonb(s.data) -> 'text'))) END) END AS llm_response,
    CASE s.type WHEN 'tool_call' THEN s.name END AS tool_name,
    CASE s.type WHEN 'tool_call' THEN lockstitch.call_at(s.thread_id, s.reply_to, s.call_index) -> 'input' END
        AS tool_input,
    CASE s.type WHEN 'tool_call' THEN lockstitch.safe_jsonb(s.message) END AS tool_output,
    child.id AS child_thread_id,
    CASE s.type WHEN 'thread_result' THEN lockstitch.safe_jsonb(s.data) ->> 'summary' END AS thread_result_summary,
    s.at AS created_at
FROM lockstitch.stitches s JOIN lockstitch.threads t ON t.id = s.thread_id
LEFT JOIN lockstitch.stitches before ON before.id = s.previous_id
LEFT JOIN lockstitch.threads child ON child.id = s.child_id
WHERE s.type IN ('llm_call', 'tool_call', 'thread_result') AND t.kind IN ('chat', 'goal', 'task');

-- A reader that has only this schema in its search_path finds the function, too.
CREATE OR REPLACE FUNCTION lockstitch_request(stitch uuid) RETURNS json LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lockstitch.lockstitch_request(stitch)
$$;
