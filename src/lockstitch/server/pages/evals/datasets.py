"""The pages of datasets: the list, the cases and versions of one dataset, one case, and the menu of a run."""

from typing import Annotated, Any, Final, Literal, cast
from urllib.parse import quote
from uuid import UUID

from fastapi import Form, Request, UploadFile
from starlette.responses import HTMLResponse, Response

from lockstitch.agents.evals.graders import NAMES
from lockstitch.agents.evals.stored_datasets import Datasets, is_plain
from lockstitch.agents.evals.stored_evals import Evals
from lockstitch.errors import LockstitchError, NotFound, Refused
from lockstitch.model import Json, Run, codec, parse_time
from lockstitch.server.auth import Caller, FormWriter, Reader
from lockstitch.server.middleware import add_log_fields
from lockstitch.server.pages.common import forms
from lockstitch.server.pages.common.render import is_htmx_request, redirect_to, render_page
from lockstitch.server.pages.navbar import page_router

PAGE: Final = 50
_MENU: Final = 12
_BESIDE: Final = 8
_MEDIA_TYPES: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}

Text = Annotated[str, Form(max_length=1_000_000)]
Name = Annotated[str, Form(max_length=255)]

router = page_router()


@router.get("/evals/datasets", name="datasets")
async def datasets(request: Request, caller: Reader, q: str = "", after: str = "") -> HTMLResponse:
    """Render the list of datasets; for htmx only its rows."""
    page = await Datasets(caller.store).list(search=q.strip()[:255] or None, limit=PAGE, after=after or None)
    template = "datasets/rows.html" if is_htmx_request(request) else "datasets/list.html"
    return render_page(request, caller, template, rows=page["datasets"], next=page["next"], q=q, parse_time=parse_time)


@router.post("/evals/datasets")
async def create(
    request: Request, caller: FormWriter, name: Name, description: Text = "", file: UploadFile | None = None
) -> Response:
    """Create a dataset, with the cases of a file if there is one."""
    stored = Datasets(caller.store)
    created = await stored.create(name.strip(), description=description.strip() or None)
    if file is not None and file.filename:
        try:
            await stored.upload(created["id"], file.filename, await file.read())
        except LockstitchError:
            await stored.delete(created["id"])
            raise
    return forms.done(request, f"/evals/datasets/{created['id']}", "Dataset created")


@router.get("/evals/datasets/{ref}")
async def dataset(
    request: Request, caller: Reader, ref: UUID, version: int | None = None, after: str = ""
) -> HTMLResponse:
    """Render the cases of a dataset; for htmx only the next rows."""
    stored = Datasets(caller.store)
    name = f"{ref}@{version}" if version is not None else str(ref)
    about, page = await stored.get(name), await stored.cases(name, limit=PAGE, after=after or None)
    shown: Json = {
        "dataset": about,
        "cases": page["cases"],
        "next": page["next"],
        "version": page["version"],
        "current": page["version"] == about["version"],
        "parse_time": parse_time,
    }
    if is_htmx_request(request):
        return render_page(request, caller, "datasets/cases.html", **shown)
    shown |= {
        "agents": forms.agents_of(caller) if caller.state.settings.work else [],
        "agent": await _recorded_agent(caller, page["cases"]),
        "graders": NAMES,
        "recorded": all(case["source_run_id"] for case in page["cases"]),
        "versions": await stored.versions(str(ref), limit=_BESIDE),
        "evals": (await Evals(caller.store).list(dataset=str(ref), limit=_BESIDE))["evals"],
        "experiments": (await stored.experiments(str(ref), limit=_BESIDE))["experiments"],
    }
    return render_page(request, caller, "datasets/dataset.html", **shown)


@router.post("/evals/datasets/{ref}/edit")
async def edit(
    request: Request, caller: FormWriter, ref: UUID, name: Name, description: Text = "", rubric: Text = ""
) -> Response:
    """Change the name, the description and the rubric of a dataset."""
    stored = Datasets(caller.store)
    await stored.edit(str(ref), name=name.strip(), description=description.strip() or None, rubric=_rubric(rubric))
    return forms.done(request, f"/evals/datasets/{ref}", "Dataset changed")


@router.post("/evals/datasets/{ref}/delete")
async def delete(request: Request, caller: FormWriter, ref: UUID) -> Response:
    """Delete a dataset with all its versions."""
    deleted = await Datasets(caller.store).delete(str(ref))
    await caller.store.audits.record(caller.actor, "delete dataset", deleted["id"], name=deleted["name"])
    return forms.done(request, "/evals/datasets", f"Dataset {deleted['name']} deleted")


@router.post("/evals/datasets/{ref}/file")
async def upload(
    request: Request, caller: FormWriter, ref: UUID, file: UploadFile, replace: Annotated[bool, Form()] = False
) -> Response:
    """Add the cases of a file."""
    change = await Datasets(caller.store).upload(
        str(ref), file.filename or "", await file.read(), create=False, replace=replace
    )
    return forms.done(request, f"/evals/datasets/{ref}", _sum_up(change))


@router.get("/evals/datasets/{ref}/file")
async def export(
    caller: Reader, ref: UUID, version: int | None = None, format: Literal["jsonl", "csv"] = "jsonl"
) -> Response:
    """Download the cases of one version."""
    stored = Datasets(caller.store)
    name = f"{ref}@{version}" if version is not None else str(ref)
    title = quote(f"{(await stored.get(name))['name']}.{format}", safe="")
    return Response(
        await stored.export(name, form=format),
        media_type=_MEDIA_TYPES[format],
        headers={"Content-Disposition": f"attachment; filename*=UTF-8''{title}"},
    )


@router.get("/evals/datasets/{ref}/cases/{case}")
async def case(request: Request, caller: Reader, ref: UUID, case: str, version: int | None = None) -> HTMLResponse:
    """Render one case with the form that changes it. The case `new` is empty."""
    stored = Datasets(caller.store)
    about = await stored.get(str(ref))
    value = await stored.case(f"{ref}@{version}" if version is not None else str(ref), case) if case != "new" else None
    shown: Json = {
        "dataset": about,
        "case": value,
        "plain": value is None or is_plain(value),
        "current": version is None or version == about["version"],
        "fields": _fields(value),
        "parse_time": parse_time,
    }
    return render_page(request, caller, "datasets/case.html", **shown)


@router.post("/evals/datasets/{ref}/cases/{case}")
async def change_case(request: Request, caller: FormWriter, ref: UUID, case: str) -> Response:
    """Store the changed case, or a new one, as a new version."""
    form = await request.form()
    values = {name: str(value).replace("\r\n", "\n") for name, value in form.items()}
    row = _row(values)
    if case != "new":
        row["id"] = case
    change = await Datasets(caller.store).put(str(ref), [row])
    return forms.done(request, f"/evals/datasets/{ref}", _sum_up(change))


@router.post("/evals/datasets/{ref}/cases/{case}/remove")
async def remove_case(request: Request, caller: FormWriter, ref: UUID, case: str) -> Response:
    """Remove a case as a new version."""
    return forms.done(request, f"/evals/datasets/{ref}", _sum_up(await Datasets(caller.store).remove(str(ref), [case])))


@router.get("/run/{ref}/datasets")
async def menu(request: Request, caller: Reader, ref: str) -> HTMLResponse:
    """Render the datasets that a run can be added to."""
    run = await caller.store.run(ref)
    page = await Datasets(caller.store).list(limit=_MENU)
    return render_page(request, caller, "datasets/menu.html", run=run, rows=page["datasets"], more=page["next"])


@router.post("/run/{ref}/datasets")
async def add_run(request: Request, caller: FormWriter, ref: str, dataset: Name) -> Response:
    """Add a run to a dataset, which is created if it does not exist."""
    run = await caller.store.run(ref)
    add_log_fields(run=run.id, thread=run.thread_id)
    dataset_id, text = await add_case(caller, run, dataset)
    if not is_htmx_request(request):
        return redirect_to(request, f"/evals/datasets/{dataset_id}", text)
    return render_page(request, caller, "datasets/added.html", text=text, id=dataset_id)


async def add_case(caller: Caller, run: Run, dataset: str) -> tuple[str, str]:
    """Add a run to a dataset, which is created if it does not exist. Return its id and a message for the page."""
    added = await Datasets(caller.store).add(dataset.strip(), [str(run.id)])
    if added["skipped"]:
        raise Refused(f"The run was not added: {added['skipped'][0]['reason']}.")
    name = added["dataset"]
    text = f"Added to {name}, version {added['version']}" if added["added"] else f"The run is a case of {name} already"
    return added["dataset_id"], text


async def _recorded_agent(caller: Caller, cases: list[Json]) -> str | None:
    """Return the agent of the run from which the first of the cases with a run was made."""
    run_id = next((case["source_run_id"] for case in cases if case["source_run_id"]), None)
    try:
        return (await caller.store.run(run_id)).agent if run_id else None
    except NotFound:
        # The run was deleted.
        return None


def _fields(case: Json | None) -> dict[str, str]:
    """Return the texts of the form fields of a case."""
    if case is None:
        return dict.fromkeys(("id", "input", "expected", "rubric", "schema", "metadata", "inputs", "outputs"), "")
    rubric: Any = case["rubric"]
    criteria = cast("list[Any]", rubric) if isinstance(rubric, list) else [rubric]
    lines = all(isinstance(item, str) and "\n" not in item for item in criteria)
    return {
        "id": case["name"] or "",
        "input": _text(case["input"]),
        "expected": _text(case["expected"]),
        "rubric": "\n".join(criteria) if lines else _text(rubric),
        "schema": _text(case["schema"]),
        "metadata": _text(case["metadata"] or None),
        "inputs": _text(case["inputs"]),
        "outputs": _text(case["outputs"]),
    }


def _row(values: dict[str, str]) -> Json:
    """Return the case of a form. Raises `Refused` with the name of a field that is not valid."""
    metadata: Json = _json("Metadata", values.get("metadata", "")) or {}
    if "inputs" in values:
        raw = {"inputs": _json("Inputs", values["inputs"]), "outputs": _json("Outputs", values.get("outputs", ""))}
        return {**raw, "metadata": metadata}
    row: Json = {
        "id": values.get("id", "").strip(),
        "input": _maybe_json(values.get("input", "")),
        "expected": _maybe_json(values.get("expected", "")),
        "rubric": _rubric(values.get("rubric", "")),
        "schema": _json("Schema", values.get("schema", "")),
        "metadata": metadata,
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def _rubric(text: str) -> Any:
    """Return one criterion for each line, or the JSON of a list."""
    if text.lstrip().startswith("["):
        return _json("Rubric", text)
    return [line.strip() for line in text.splitlines() if line.strip()] or None


def _json(label: str, text: str) -> Any:
    if not text.strip():
        return None
    try:
        return codec.loads(text)
    except (ValueError, RecursionError) as exc:
        raise Refused(f"{label}: this is not valid JSON: {exc}. Nothing was changed.") from exc


def _maybe_json(text: str) -> Any:
    """Return the value of a list or object, and other texts unchanged."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return codec.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else codec.dumps(value).decode()


def _sum_up(change: Json) -> str:
    names = (("added", "added"), ("replaced", "changed"), ("removed", "removed"))
    numbers = ", ".join(f"{change[name]} {word}" for name, word in names if change[name])
    return f"Version {change['version']}: {numbers}" if numbers else "Nothing changed"
