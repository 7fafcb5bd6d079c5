-- threads and stitches, of the kinds chat, goal and task. A reference points to an existing row or is NULL: deleted or
-- archived rows are not a parent, child or predecessor here.

CREATE VIEW threads AS
SELECT t.id, branching.id AS branching_stitch_id,
    coalesce(t.goal, substr((
        SELECT l.text FROM lens_texts l WHERE l.thread_id = t.id AND l.type = 'input'
        ORDER BY l.position LIMIT 1), 1, 200), '')
        AS goal,
    t.tasks,
    CASE t.status WHEN 'cancelled' THEN 'failed' ELSE t.status END AS status,
    CASE t.status WHEN 'cancelled' THEN json_set(coalesce(t.result, '{}'), '$.cancelled', json('true'))
         ELSE t.result END AS result,
    (SELECT json_group_array(json(shown)) FROM (
         SELECT json_object('child_thread_id', i.entry ->> '$.child_id', 'status', i.entry ->> '$.status',
                            'summary', json(i.entry -> '$.data.summary'), 'result', json(i.entry -> '$.data.data')) AS shown
         FROM main.inbox i WHERE i.thread_id = t.id AND i.position IS NULL AND i.kind = 'children' ORDER BY i.id))
        AS pending_child_results,
    t.created_at, t.updated_at,
    t.parent_id AS parent_thread_id
FROM main.threads t
LEFT JOIN main.stitch_rows branching ON branching.id = t.branching_stitch_id
WHERE t.kind IN ('chat', 'goal', 'task');

-- Differs from PostgreSQL: it uses the table behind main.stitches. That view computes previous_id for each row, so it
-- cannot be used for a lookup. Here it is the id of the previous row, which can. The conditions name both tables,
-- because SQLite with statistics reads a whole table first for a condition on a single table.
CREATE VIEW stitches AS
SELECT s.id, t.id AS thread_id, before.id AS previous_stitch_id, s.type AS stitch_type,
    CASE s.type WHEN 'llm_call' THEN json_object(
        'model', s.name,
        'settings', json(coalesce(s.data -> '$.request.parameters', (
            SELECT q.request -> '$.parameters' FROM lens_requests q WHERE q.run_id = r.id), '{}')),
        'tools_hash', coalesce(s.data ->> '$.request.tools', (
            SELECT q.request ->> '$.tools' FROM lens_requests q WHERE q.run_id = r.id)),
        'messages', json_object('to', s.position - 1, 'sha256', s.data ->> '$.request.sha256')) END AS llm_request,
    CASE s.type WHEN 'llm_call' THEN coalesce(s.message,
        CASE WHEN s.data ->> '$.text' IS NOT NULL THEN json_object('role', 'assistant', 'content', json_array(
            json_object('type', 'text', 'text', json(s.data -> '$.text')))) END) END AS llm_response,
    CASE s.type WHEN 'tool_call' THEN s.name END AS tool_name,
    CASE s.type WHEN 'tool_call' THEN (
        SELECT c.call -> '$.input' FROM lens_calls c
        WHERE c.thread_id = t.id AND c.position = s.reply_to AND c.call_index = s.call_index) END AS tool_input,
    CASE s.type WHEN 'tool_call' THEN s.message END AS tool_output,
    child.id AS child_thread_id,
    CASE s.type WHEN 'thread_result' THEN s.data ->> '$.summary' END AS thread_result_summary,
    s.at AS created_at
FROM main.stitch_rows s JOIN main.threads t ON t.no = s.thread_no
LEFT JOIN main.run_rows r ON r.no = s.run_no
LEFT JOIN main.stitch_rows before ON before.thread_no = s.thread_no AND before.position = s.previous
LEFT JOIN main.threads child ON child.id = s.child_id
WHERE iif(t.position < 0, NULL, s.type) IN ('llm_call', 'tool_call', 'thread_result')
  AND iif(s.position < 0, NULL, t.kind) IN ('chat', 'goal', 'task');
