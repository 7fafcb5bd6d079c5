"""Validate the answer, generate the title, store generated files."""

import inspect
import json
import re
from collections.abc import Sequence
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError

from lockstitch.engine.actions.model import side_model_call
from lockstitch.engine.config import AnswerCheck
from lockstitch.engine.ports.tool import GeneratedFile
from lockstitch.engine.session.run_context import RunCancelled, RunContext
from lockstitch.errors import wire_name_of
from lockstitch.model import Entry, File, Json, codec, text_of
from lockstitch.model.codec import error_text, storable_text
from lockstitch.model.message import user

TITLE_LENGTH: Final = 50
"""Maximum number of characters of a title."""
_SHOWN: Final = 800
"""Characters of the conversation that the title is made from."""
# Adjacent repeats must not match the same character, else a long answer causes exponential backtracking.
_FENCE: Final = re.compile(r"^\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*$", re.DOTALL)


async def check_answer(context: RunContext, text: str) -> None:
    """Check the final answer. If it is not valid, the model gets the problem and continues."""
    session = context.session
    output, problem = _parsed(context, text)
    if problem is None and context.config.check is not None:
        try:
            problem = await context.cancellable(_verdict(context.config.check, text if output is None else output))
        except RunCancelled:
            raise
        except Exception as exc:  # an error of the application's check must not block the thread
            session.record(context.error_entry(exc, fatal=True, where="final_answer_check"), must_commit=False)
            return
    data: Json = {"passed": problem is None} if problem is None else {"passed": False, "problem": problem}
    session.record(session.entry("final_answer_validation", data=data), must_commit=False)
    if problem is not None:
        session.record(
            session.entry("final_answer_validation_failed", message=user(problem), data={"problem": problem})
        )
    elif output is not None:
        session.change_run(output=_as_json(output))


async def _verdict(check: AnswerCheck, answer: Any) -> str | None:
    verdict: Any = check(answer)
    problem: Any = await verdict if inspect.isawaitable(verdict) else verdict
    if problem is not None and not isinstance(problem, str):
        raise TypeError(f"an answer check must return None or a str, not {problem!r}")
    return problem if problem is None else storable_text(problem)


async def make_title(context: RunContext) -> None:
    """Set a title of at most 50 characters. If the model call fails, the conversation has no title."""
    session = context.session
    lines = [text_of(message) for message in session.messages[:6]]
    talk = "\n\n".join(text for text in lines if text)[:_SHOWN]
    prompt = f"Write a title of at most {TITLE_LENGTH} characters for this conversation. Answer only with it.\n\n{talk}"
    title = await context.run_optional(side_model_call(context, "title", prompt, max_tokens=64), purpose="title") or ""
    cleaned = " ".join(title.replace("\x00", "").strip().strip("\"'").split())
    if cleaned:
        session.record(must_commit=False, title=cleaned[:TITLE_LENGTH].rstrip())


def _parsed(context: RunContext, text: str) -> tuple[Any, str | None]:
    """Return the structured output and the problem with it; both are None if the agent has no output schema."""
    if context.config.definition.output_schema is None:
        return None, None
    fenced = _FENCE.match(text)
    body = fenced.group(1) if fenced else text
    model = context.config.output_type
    try:
        if model is not None:
            output = model.model_validate_json(body)
            codec.dumps(_as_json(output))
            return output, None
        result = codec.loads(body)
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in exc.errors()[:10])
        return None, f"Your answer does not match the schema: {problems}. Answer only with the corrected JSON."
    except json.JSONDecodeError as exc:
        return None, f"Your answer is not JSON: {exc}. Answer only with the JSON."
    except Exception as exc:  # NaN and errors of the application's validators
        return None, f"Your answer was rejected: {error_text(exc)} Answer only with the corrected JSON."
    if not isinstance(result, dict):
        return None, "Your answer must be a JSON object. Answer only with the JSON."
    return cast("Json", result), None


def _as_json(output: BaseModel | Json) -> Json:
    return output.model_dump(mode="json") if isinstance(output, BaseModel) else output


async def fetch_files(context: RunContext, file_ids: Sequence[str]) -> None:
    """Fetch files from the provider and store them. An error is recorded, and the run continues."""
    session = context.session
    step = session.open_run.steps
    for file_id in file_ids:
        entry = session.entry("file_generated", data={"file_id": file_id})
        try:
            download = await context.cancellable(context.config.provider.download(file_id))
        except RunCancelled:
            raise
        except Exception as exc:  # a missing file must not fail the run
            session.record(entry, _failed(context, file_id, exc), must_commit=False)
            continue
        data: Json = {"file_id": file_id, "filename": download.filename, "size": len(download.content)}
        downloaded = session.entry("file_downloaded", data=data)
        file = GeneratedFile(file_id, download.filename, download.content, download.mime_type)
        stored = await context.cancellable(_stored(context, file, step))
        session.record(entry, downloaded, *stored, must_commit=False)


async def keep_file(context: RunContext, file: GeneratedFile, *, step: int) -> list[Entry]:
    """Store a file of a tool, and return the entries to record."""
    data: Json = {"file_id": file.file_id, "filename": file.filename, "size": len(file.content)}
    return [context.session.entry("file_generated", data=data), *(await _stored(context, file, step))]


async def _stored(context: RunContext, file: GeneratedFile, step: int) -> list[Entry]:
    session = context.session
    store, head, run = session.store, session.head, session.open_run
    try:
        path = await context.config.files.store(head.id, file.file_id, file.filename, file.content)
        now = session.clock.now()
        files = await store.files.list(thread_id=head.id, file_id=file.file_id, limit=1)
        record = File(
            thread_id=head.id,
            file_id=file.file_id,
            filename=file.filename,
            storage_path=path,
            size=len(file.content),
            mime_type=file.mime_type,
            step=step,
            created_in_run=files[0].created_in_run if files else run.id,
            last_updated_run=run.id,
            created_at=files[0].created_at if files else now,
            last_updated_at=now,
        )
        # Not part of the commit. After a crash, the same row is written again.
        await store.files.put(record)
        state = session.open_run.state
        generated: list[Json] = state.get("files") or []
        others = [other for other in generated if other["file_id"] != file.file_id]
        session.change_run(state={**state, "files": [*others, record.as_generated()]})
    except Exception as exc:  # an error of the file store must not fail the run
        return [_failed(context, file.file_id, exc)]
    data: Json = {"file_id": file.file_id, "filename": file.filename, "storage_path": path}
    shown = {**data, "size": len(file.content), "mime_type": file.mime_type, "step": step}
    context.emit("files", {"files": [shown]})
    return [session.entry("file_stored", data=data)] if path is not None else []


def _failed(context: RunContext, file_id: str, exc: Exception) -> Entry:
    data: Json = {"file_id": file_id, "type": wire_name_of(exc), "message": error_text(exc)}
    return context.session.entry("file_error", data=data)
