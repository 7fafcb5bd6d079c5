"""Kill an agent in the middle of its work, and watch another process finish it.

A first process records a conversation, tools in parallel, and is killed with SIGKILL at a moment nobody chose. A
second one takes the thread over and goes on where it was cut. The model and its tools are scripted: no key needed.
"""

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from lockstitch import Entry, Run, Stitch, Store, Thread, open_store, tool_result, waiting
from lockstitch.records import Json, open_calls, text_of

QUESTIONS = ("Which depot has parcel 4711?", "Who may sign for it?", "Check this week's parcels, day by day.")
ANSWERS = ("It is in Graz.", "You, with a photo identity card.", "All depots are checked; nothing is missing.")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
DEPOTS = ("Graz", "Linz", "Wien")


def model(context: list[Json]) -> list[Json]:
    """The scripted model: a pure function of what was said so far, as blocks of its next message."""
    asked = max(place for place, message in enumerate(context) if isinstance(message["content"], str))
    number, step = QUESTIONS.index(context[asked]["content"]), (len(context) - asked) // 2
    wanted = (("parcel 4711",), (), DAYS)[number]
    if step == len(wanted):
        return [{"type": "text", "text": ANSWERS[number]}]
    return [
        {
            "type": "tool_use",
            "id": f"call-{len(context)}-{depot}",
            "name": "look",
            "input": {"depot": depot, "for": wanted[step]},
        }
        for depot in DEPOTS
    ]


async def look(call: Json) -> str:
    """The tool. It notes that it ran; and it only reads, so it may run again when it was cut off."""
    with open(os.environ["DEMO_LEDGER"], "a") as ledger:
        ledger.write(f"{call['id']}\n")
    await asyncio.sleep(random.uniform(0.02, 0.06))
    depot = call["input"]["depot"]
    return f"{depot}: {call['input']['for']} {'found' if depot == 'Graz' else 'not here'}"


async def begin(store: Store, head: Thread, question: str) -> tuple[Thread, Run]:
    """A turn with its input: committed before the model is asked."""
    run = store.new_run(head, input_position=head.position + 1, model="scripted")
    said = Entry(type="input", run_id=run.id, step_number=0, message={"role": "user", "content": question})
    return (await store.append(head, [said], fields={"status": "running"}, new_runs=[run])).head, run


async def go_on(store: Store, head: Thread, run: Run) -> AsyncIterator[Thread]:
    """Whatever a turn still lacks, one commit after the other. After a crash as before it: there is no other path."""
    while True:
        log = await store.stitches(head, run.first_position)
        step = max((stitch.step_number or 0) for stitch in log)
        unanswered = open_calls(log)
        for work in asyncio.as_completed([answer(response, call) for response, call in unanswered]):
            head = (await store.append(head, [await work])).head
            yield head
        if unanswered:
            continue
        blocks = model(await store.context(head))
        entry = Entry(
            type="llm_call",
            run_id=run.id,
            step_number=step + 1,
            message={"role": "assistant", "content": blocks},
            input_tokens=100 * (step + 1),
            output_tokens=20,
        )
        if entry.calls:
            head = (await store.append(head, [entry])).head
            yield head
            continue
        ended = {
            "status": "completed",
            "stop_reason": "end_turn",
            "steps": step + 1,
            "output_position": head.position + 1,
            "completed_at": store.clock.now(),
            "input_tokens": sum(stitch.input_tokens or 0 for stitch in log) + (entry.input_tokens or 0),
            "output_tokens": sum(stitch.output_tokens or 0 for stitch in log) + (entry.output_tokens or 0),
        }
        rest = {"status": "waiting", "waiting_for": [waiting("input", store.clock.now())]}
        yield (await store.append(head, [entry], fields=rest, runs=[(run, ended)])).head
        return


async def answer(response: Stitch, call: Json) -> Entry:
    """Run one tool; its result as an entry."""
    content = await look(call)
    asked = (response.message or {})["content"]
    return Entry(
        type="tool_call",
        run_id=response.run_id,
        step_number=response.step_number,
        name=call["name"],
        call_id=call["id"],
        reply_to=response.position,
        call_index=asked.index(call),
        status="ok",
        message=tool_result(call["id"], content),
    )


async def record(url: str) -> None:
    """The first process: three turns. After each commit it says which turn and how far the record is."""
    async with open_store(url) as store:
        await store.create(key="parcels", agent="clerk", title="Parcel 4711")
        for question in QUESTIONS:
            head, run = await begin(store, await store.claim("parcels"), question)
            print(run.turn, head.position, flush=True)
            async for reached in go_on(store, head, run):
                print(run.turn, reached.position, flush=True)


async def finish(url: str) -> None:
    """The second process: take the thread from its dead holder, and do what is missing."""
    async with open_store(url) as store:
        started = time.perf_counter()
        head = await store.claim("parcels")
        took = (time.perf_counter() - started) * 1000
        run = (await store.runs(head))[-1]
        log = await store.stitches(head, run.first_position)
        print(f"   It finds {head.position} stitches, the last {len(log)} of them a turn that was cut off")
        print(f"   with {len(open_calls(log))} tool calls unanswered. It takes the thread over in {took:.0f} ms: the")
        print("   holder is provably dead, so there is no lease to wait for.")
        async for _ in go_on(store, head, run):
            pass
        print(f"   It finishes the turn: {text_of((await store.context('parcels'))[-1])!r}")


def killed_in_the_middle(url: str) -> int | None:
    """Kill the first process at some moment of its third turn; the last position it acknowledged.

    None on a machine so busy that the turn was over before the signal came.
    """
    child = subprocess.Popen([sys.executable, __file__, "record", url], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    left, position = random.randint(2, 9), 0
    for line in child.stdout:
        turn, position = map(int, line.split())
        left -= turn == len(QUESTIONS)
        if not left:
            break
    child.kill()
    # It went on until the signal came: what it said meanwhile counts too.
    for line in child.stdout:
        position = int(line.split()[1])
    child.wait()
    status = ask(url, "sql", "SELECT status FROM runs ORDER BY sequence DESC LIMIT 1")[0]["status"]
    return None if status == "completed" else position


def show(url: str, *command: str) -> None:
    """A command as a person types it, with its answer."""
    print(f"\n$ lockstitch {' '.join(command)}", flush=True)
    subprocess.run([sys.executable, "-m", "lockstitch", "--store", url, *command], check=True)


def ask(url: str, *command: str) -> Any:
    """A command as a program uses it."""
    line = [sys.executable, "-m", "lockstitch", "--store", url, "--json", *command]
    return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lockstitch-") as folder:
        os.environ["DEMO_LEDGER"] = f"{folder}/ledger"
        print("1. An agent answers questions about parcels, asking three depots at a time.")
        print("   Every step is committed before the next begins. Then: kill -9.")
        for attempt in itertools.count():
            url = f"sqlite:///{folder}/demo{attempt}.db"
            Path(folder, "ledger").write_text("")
            acknowledged = killed_in_the_middle(url)
            if acknowledged is not None:
                break
        print(f"   The last commit it knew of was stitch {acknowledged}.\n")
        results = f"SELECT call_id FROM stitches WHERE type = 'tool_call' AND position <= {acknowledged}"
        recorded = [row["call_id"] for row in ask(url, "sql", results)]

        print("2. A new process opens the same store.", flush=True)
        subprocess.run([sys.executable, __file__, "finish", url], check=True)

        print("\n3. The record, through the command line:")
        show(url, "threads")
        show(url, "history", "parcels")
        show(url, "log", ask(url, "history", "parcels", "--limit", "1")[0]["run_id"])
        show(url, "doctor", "--verify")

        ran = Counter(Path(folder, "ledger").read_text().split())
        assert ask(url, "sql", f"SELECT count(*) AS n FROM stitches WHERE position <= {acknowledged}") == [
            {"n": acknowledged}
        ]
        assert all(ran[call] == 1 for call in recorded)
        again = sum(times - 1 for times in ran.values())
        print(f"\nAll {acknowledged} acknowledged stitches are there. {len(recorded)} tool calls had been recorded")
        print(f"before the kill: each ran once. {again} cut off in the middle ran again, because they only read.")


if __name__ == "__main__":
    if sys.argv[1:]:
        asyncio.run({"record": record, "finish": finish}[sys.argv[1]](sys.argv[2]))
    else:
        main()
