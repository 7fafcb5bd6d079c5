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
_SHOWN: Final = 800
# No two repeats in a row may match the same character: a long answer would be tried in every way there is.
_FENCE: Final = re.compile(r"^\s*```(?:json)?[^\S\n]*\n(.*?)\n?```\s*$", re.DOTALL)


async def check_answer(stage: RunContext, text: str) -> None:
    """Check the final answer; what is wrong with it is told to the model, which goes on."""
    journal = stage.journal
    output, problem = _parsed(stage, text)
    if problem is None and stage.setup.check is not None:
        try:
            problem = await stage.cancellable(_verdict(stage.setup.check, text if output is None else output))
        except RunCancelled:
            raise
        except Exception as exc:  # the caller's own check, which must not leave the thread stuck
            journal.record(stage.error_entry(exc, fatal=True, where="final_answer_check"), first=False)
            return
    data: Json = {"passed": problem is None} if problem is None else {"passed": False, "problem": problem}
    journal.record(journal.entry("final_answer_validation", data=data), first=False)
    if problem is not None:
        journal.record(
            journal.entry("final_answer_validation_failed", message=user(problem), data={"problem": problem})
        )
    elif output is not None:
        journal.change_run(output=_as_json(output))


async def _verdict(check: AnswerCheck, answer: Any) -> str | None:
    verdict: Any = check(answer)
    problem: Any = await verdict if inspect.isawaitable(verdict) else verdict
    if problem is not None and not isinstance(problem, str):
        raise TypeError(f"a check returns None or what is wrong with the answer, not {problem!r}")
    return problem if problem is None else storable_text(problem)


async def make_title(stage: RunContext) -> None:
    """A title of 50 characters at most. A conversation without one is no failure."""
    journal = stage.journal
    said = [text_of(message) for message in journal.messages[:6]]
    talk = "\n\n".join(text for text in said if text)[:_SHOWN]
    prompt = f"Name this conversation in at most {TITLE_LENGTH} characters. Answer with the title alone.\n\n{talk}"
    title = await stage.run_optional(side_model_call(stage, "title", prompt, max_tokens=64), purpose="title") or ""
    cleaned = " ".join(title.replace("\x00", "").strip().strip("\"'").split())
    if cleaned:
        journal.record(first=False, title=cleaned[:TITLE_LENGTH].rstrip())


def _parsed(stage: RunContext, text: str) -> tuple[Any, str | None]:
    """The structured output, and what is wrong with it; neither where none is asked for."""
    if stage.setup.definition.output_schema is None:
        return None, None
    fenced = _FENCE.match(text)
    body = fenced.group(1) if fenced else text
    model = stage.setup.output_type
    try:
        if model is not None:
            output = model.model_validate_json(body)
            codec.dumps(_as_json(output))
            return output, None
        found = codec.loads(body)
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in exc.errors()[:10])
        return None, f"Your answer does not follow the schema: {problems}. Answer with the corrected JSON alone."
    except json.JSONDecodeError as exc:
        return None, f"Your answer is no JSON: {exc}. Answer with the JSON alone."
    except Exception as exc:  # numbers that are none, and whatever the validators of the caller's model raise
        return None, f"Your answer cannot be taken: {error_text(exc)} Answer with the corrected JSON alone."
    if not isinstance(found, dict):
        return None, "Your answer must be a JSON object. Answer with the JSON alone."
    return cast("Json", found), None


def _as_json(output: BaseModel | Json) -> Json:
    return output.model_dump(mode="json") if isinstance(output, BaseModel) else output


async def fetch_files(stage: RunContext, file_ids: Sequence[str]) -> None:
    """Fetch files from the provider and keep them. One that fails is noted; the others and the run go on."""
    journal = stage.journal
    step = journal.open_run.steps
    for file_id in file_ids:
        made = journal.entry("file_generated", data={"file_id": file_id})
        try:
            found = await stage.cancellable(stage.setup.provider.download(file_id))
        except RunCancelled:
            raise
        except Exception as exc:  # one file is no reason to give the run up
            journal.record(made, _failed(stage, file_id, exc), first=False)
            continue
        data: Json = {"file_id": file_id, "filename": found.filename, "size": len(found.content)}
        downloaded = journal.entry("file_downloaded", data=data)
        file = GeneratedFile(file_id, found.filename, found.content, found.mime_type)
        stored = await stage.cancellable(_stored(stage, file, step))
        journal.record(made, downloaded, *stored, first=False)


async def keep_file(stage: RunContext, file: GeneratedFile, *, step: int) -> list[Entry]:
    """Keep a file that a tool made; what is to be noted of it."""
    data: Json = {"file_id": file.file_id, "filename": file.filename, "size": len(file.content)}
    return [stage.journal.entry("file_generated", data=data), *(await _stored(stage, file, step))]


async def _stored(stage: RunContext, file: GeneratedFile, step: int) -> list[Entry]:
    journal = stage.journal
    store, head, run = journal.store, journal.head, journal.open_run
    try:
        path = await stage.setup.files.store(head.id, file.file_id, file.filename, file.content)
        now = journal.clock.now()
        known = await store.files.list(thread_id=head.id, file_id=file.file_id, limit=1)
        record = File(
            thread_id=head.id,
            file_id=file.file_id,
            filename=file.filename,
            storage_path=path,
            size=len(file.content),
            mime_type=file.mime_type,
            step=step,
            created_in_run=known[0].created_in_run if known else run.id,
            last_updated_run=run.id,
            created_at=known[0].created_at if known else now,
            last_updated_at=now,
        )
        # A row of its own, written again with the same values when a crash makes it twice.
        await store.files.put(record)
        made: list[str] = journal.open_run.state.get("files") or []
        if file.file_id not in made:
            journal.change_run(state={**journal.open_run.state, "files": [*made, file.file_id]})
    except Exception as exc:  # nor is a file store that breaks
        return [_failed(stage, file.file_id, exc)]
    data: Json = {"file_id": file.file_id, "filename": file.filename, "storage_path": path}
    shown = {**data, "size": len(file.content), "mime_type": file.mime_type, "step": step}
    stage.emit("files", {"files": [shown]})
    return [journal.entry("file_stored", data=data)] if path is not None else []


def _failed(stage: RunContext, file_id: str, exc: Exception) -> Entry:
    data: Json = {"file_id": file_id, "type": wire_name_of(exc), "message": error_text(exc)}
    return stage.journal.entry("file_error", data=data)
