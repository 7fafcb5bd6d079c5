"""One record of every class, with a value other than the default in every field."""

from hashlib import sha256

from lockstitch.model import (
    Agent,
    AgentVersion,
    Archive,
    Audit,
    Blob,
    BlobUse,
    DailyMetric,
    Delivery,
    Eval,
    Feedback,
    File,
    IngestBody,
    Knowledge,
    Limit,
    LiveDelta,
    Memory,
    MirroredModelCall,
    Record,
    Run,
    Stitch,
    TeamMember,
    Thread,
    Token,
    WebhookEvent,
    Worker,
    new_id,
)
from tests.conformance.contract import NOW, later
from tests.waits import waiting

BAG = {"z": 1, "a": [None, True, 2**70, -0.5, "ünï"], "nested": {"": {}}}
CONTENT = bytes(range(256))
DIGEST = sha256(CONTENT).hexdigest()


def records() -> list[Record]:
    """Return the records in an order in which they can be written: referenced records first."""
    root = Thread(created_at=NOW, updated_at=NOW)
    thread = _thread(root)
    run = _run(thread)
    return [root, thread, run, _stitch(thread, run), *_side_records(thread), *_table_records(thread, run)]


def _thread(parent: Thread) -> Thread:
    return Thread(
        key="customer/42",
        project="shop",
        user_id="ada",
        kind="task",
        agent="helper",
        version=3,
        parent_id=parent.id,
        branching_stitch_id=new_id(),
        depth=1,
        goal="Sell it",
        title="A sale",
        tasks=[{"id": "1", "description": "ask", "status": "done", "own": BAG}],
        status="failed",
        waiting_for=[waiting("timer", NOW, "t1", later(60))],
        result={"why": BAG},
        state=BAG,
        settings=BAG,
        extras=BAG,
        position=1,
        tip_id=new_id(),
        context_from=1,
        first_position=1,
        last_sequence=1,
        last_turn=1,
        total_runs=1,
        worker_id=new_id(),
        fence=7,
        delivered=2,
        pending_children=4,
        cancel_requested=True,
        wake_at=later(1),
        priority=-5,
        crashes=2,
        created_at=later(0.000001),
        updated_at=later(0.123456),
        last_run_at=later(3),
        expires_at=later(86400),
    )


def _run(thread: Thread) -> Run:
    return Run(
        thread_id=thread.id,
        sequence=1,
        turn=1,
        parent_run_id=new_id(),
        agent="helper",
        version=3,
        role="team",
        status="failed",
        stop_reason="error",
        first_position=1,
        input_position=1,
        output_position=1,
        output=BAG,
        state=BAG,
        model="m-1",
        provider="scripted",
        input_tokens=2**53 + 1,
        output_tokens=2**63 - 1,
        cache_read_tokens=3,
        cache_write_tokens=4,
        cost=BAG,
        total_cost=0.1,
        steps=5,
        error="it broke",
        tags=["x", ""],
        metadata=BAG,
        extras=BAG,
        source="test",
        started_at=NOW,
        completed_at=later(0.000001),
    )


def _stitch(thread: Thread, run: Run) -> Stitch:
    return Stitch(
        type="tool_call",
        run_id=run.id,
        lane=run.id,
        parent_id=new_id(),
        reply_to=1,
        call_index=2,
        calls=3,
        step_number=4,
        name="look",
        call_id="call/1",
        status="ok",
        message={"type": "tool_result", "tool_use_id": "call/1", "content": [BAG]},
        data=BAG,
        input_tokens=1,
        output_tokens=2,
        cache_read_tokens=3,
        cache_write_tokens=4,
        duration_ms=5,
        messages_count=6,
        estimated_tokens=7,
        at=later(0.000009),
        thread_id=thread.id,
        position=1,
        previous_id=new_id(),
        fence=7,
    )


def _side_records(thread: Thread) -> list[Record]:
    return [
        Delivery(thread_id=thread.id, sender="s/1", call_id="c", kind="approval", entry=BAG, position=9, at=NOW),
        Worker(
            host="h",
            boot_id="b",
            pid=2**31,
            process_started="123",
            lease_seconds=1.5,
            started_at=NOW,
            beat_at=later(1),
            dead=True,
            doing=BAG,
        ),
    ]


def _table_records(thread: Thread, run: Run) -> list[Record]:
    times = {"created_at": NOW, "updated_at": later(1)}
    shop = {"project": "shop"}
    return [
        Agent(**shop, name="helper/..", role="team", version=2, metadata=BAG, **times),
        AgentVersion(**shop, name="helper/..", version=2, digest="d", definition=BAG, created_at=NOW),
        TeamMember(**shop, team="helper/..", version=2, place=1, member="m", member_version=4),
        Blob(sha256=DIGEST, size=len(CONTENT), media_type="image/png", content=CONTENT, created_at=NOW),
        BlobUse(thread_id=thread.id, sha256=DIGEST),
        File(
            thread_id=thread.id,
            file_id="../file",
            filename="a b.txt",
            storage_path="/x",
            size=1,
            mime_type="text/plain",
            step=2,
            created_in_run=run.id,
            last_updated_run=run.id,
            created_at=NOW,
            last_updated_at=later(1),
            metadata=BAG,
        ),
        Memory(
            **shop,
            user_id="ada",
            agent="helper",
            thread_id=thread.id,
            kind="learning",
            text="likes\ttea\n",
            tags=["t"],
            metadata=BAG,
            **times,
        ),
        Knowledge(**shop, name="doc", description="d", type="pdf", size=1, status="ready", metadata=BAG, **times),
        Eval(**shop, name="e", type="accuracy", agent="helper", run_id=run.id, input=BAG, result=BAG, **times),
        Feedback(
            **shop,
            thread_id=thread.id,
            run_id=run.id,
            stitch_id=new_id(),
            user_id="ada",
            name="thumb",
            score=-0.25,
            value=BAG,
            comment="good",
            source="page",
            **times,
        ),
        IngestBody(**shop, source="otel", headers=BAG, body=CONTENT, parsed=True, problem="why", at=NOW),
        LiveDelta(thread_id=thread.id, run_id=run.id, step_number=1, number=2, text={"text": "so far"}),
        Token(
            sha256=DIGEST,
            **shop,
            name="ci",
            scopes=["read"],
            created_at=NOW,
            expires_at=later(1),
            revoked_at=later(2),
        ),
        Audit(**shop, actor="ada", act="purge", subject="u", data=BAG, at=NOW),
        DailyMetric(
            **shop,
            day="2026-01-01",
            agent="helper",
            model="m/1",
            runs=1,
            failed_runs=2,
            input_tokens=3,
            output_tokens=4,
            cache_read_tokens=5,
            cache_write_tokens=6,
            total_cost=0.7,
        ),
        Archive(
            thread_id=thread.id,
            first_position=1,
            last_position=2,
            run_id=run.id,
            encoding="gzip",
            sha256=DIGEST,
            content=CONTENT,
            created_at=NOW,
        ),
        Limit(name="provider/..", at_most=3, agents=["helper", "other"]),
        WebhookEvent(
            thread_id=thread.id,
            hook="pager/..",
            event="waiting",
            body=BAG,
            tries=2,
            due_at=later(5),
            at=NOW,
        ),
        MirroredModelCall(
            project="p",
            provider="anthropic",
            response_id="msg_1",
            thread_id=thread.id,
            stitch_id=new_id(),
            at=NOW,
        ),
    ]
