"""A run to take home: as LangSmith has it, as its log line by line, or its thread as a bundle."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response, StreamingResponse

from lockstitch.bridges.outgoing.bundle import export_bundle
from lockstitch.bridges.outgoing.langsmith import export_run
from lockstitch.records import Stitch, codec
from lockstitch.server.access import Reader
from lockstitch.server.guard import mention
from lockstitch.server.problems import Problem

router = APIRouter(include_in_schema=False)

FORMATS: Final = ("langsmith", "log", "bundle")


@router.get("/run/{ref}/export/{form}")
async def export(caller: Reader, ref: str, form: str) -> Response:
    """A file of the run, in one of the formats."""
    if form not in FORMATS:
        raise Problem(404, "No such format", f"There are {', '.join(FORMATS)}.")
    run = await caller.store.run(ref)
    mention(run=run.id, thread=run.thread_id)
    match form:
        case "langsmith":
            body = codec.dumps(await export_run(caller.store, str(run.id)))
            return _file(f"run-{run.id}.langsmith.json", "application/json", body)
        case "log":
            log = await caller.store.log(run.id)
            headers = _named(f"run-{run.id}.jsonl")
            return StreamingResponse(_lines(log), headers=headers, media_type="application/jsonl")
        case _:
            with TemporaryDirectory(prefix="lockstitch-") as folder:
                path = Path(folder) / "bundle.zip"
                await export_bundle(caller.store, run.thread_id, path)
                return _file(f"thread-{run.thread_id}.zip", "application/zip", path.read_bytes())


def _lines(log: list[Stitch]) -> Iterator[bytes]:
    for start in range(0, len(log), 500):
        yield b"".join(codec.dumps(stitch.as_json()) + b"\n" for stitch in log[start : start + 500])


def _file(name: str, media_type: str, body: bytes) -> Response:
    return Response(body, headers=_named(name), media_type=media_type)


def _named(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
