"""`dataset`: create, change, show and export datasets, and make cases of runs."""

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstitch.cli.actions import actions_of
from lockstitch.cli.options import Limit, Yes, confirm, examples
from lockstitch.cli.references import find_run, find_thread
from lockstitch.cli.render.output import TableColumn, one_line, plural, time
from lockstitch.cli.session import session_of
from lockstitch.errors import NotFound, Refused
from lockstitch.model import Json, codec, parse_time

if TYPE_CHECKING:
    from lockstitch.agents.evals.stored_datasets import Datasets

app = typer.Typer()
dataset = typer.Typer(
    name="dataset", help="Create, change and export datasets; add runs to them.", rich_markup_mode=None
)
app.add_typer(dataset)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the dataset.", show_default=False)]
Ref = Annotated[
    str, typer.Argument(metavar="NAME", help="Name or id of the dataset. Version 3 is NAME@3.", show_default=False)
]
Cases = Annotated[list[str], typer.Argument(metavar="CASE...", help="Names or ids of cases.", show_default=False)]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="Description.", show_default=False)]
Rubric = Annotated[
    list[str] | None,
    typer.Option(metavar="TEXT", help="A criterion of the grader `rubric`. Can be repeated.", show_default=False),
]
Replace = Annotated[bool, typer.Option("--replace", help="Remove the cases that the file does not have.")]

_SHOWN = 60


def _call(
    context: typer.Context, work: "Callable[[Datasets], Coroutine[Any, Any, Json]]", *, create: bool = False
) -> Json:
    with session_of(context).open(create=create) as store:
        return store.portal.call(work(actions_of(store).datasets()))


@dataset.command("list", epilog=examples("lockstitch dataset list", "lockstitch dataset list --search support --json"))
def list_(
    context: typer.Context,
    search: Annotated[str | None, typer.Option(metavar="TEXT", help="Only names with this text.")] = None,
    limit: Limit = 50,
) -> None:
    """List the datasets of the project by name."""
    session = session_of(context)
    page = _call(context, lambda datasets: datasets.list(search=search, limit=min(limit, 1000)))
    if session.json_output:
        session.out.json(page["datasets"])
        return
    columns = [TableColumn("NAME"), TableColumn("CASES", right=True), TableColumn("VERSION", right=True)]
    columns += [TableColumn("CHANGED"), TableColumn("DESCRIPTION", flexible=True)]
    session.out.table(
        columns,
        [
            [
                one_line(row["name"]),
                f"{row['cases']:,}",
                str(row["version"]),
                time(parse_time(row["updated_at"]), seconds=False),
                one_line(row["description"] or ""),
            ]
            for row in page["datasets"]
        ],
    )
    if page["next"]:
        session.out.note("There are more datasets. Use a larger --limit.")


@dataset.command(
    epilog=examples("lockstitch dataset show questions", "lockstitch dataset show questions@2 --case sum --json")
)
def show(
    context: typer.Context,
    name: Ref,
    case: Annotated[str | None, typer.Option(metavar="CASE", help="Show one case completely.")] = None,
    limit: Limit = 50,
) -> None:
    """Show the cases of a dataset."""
    session = session_of(context)
    if case is not None:
        value = _call(context, lambda datasets: datasets.case(name, case))
        if session.json_output:
            session.out.json(value)
            return
        fields = ("case", "input", "expected", "schema", "rubric", "metadata", "splits", "source_run_id", "version")
        session.out.fields([(field, _text(value[field])) for field in fields if value[field] not in (None, {}, [])])
        return

    async def read(datasets: "Datasets") -> Json:
        return {**await datasets.get(name), "page": await datasets.cases(name, limit=min(limit, 1000))}

    value = _call(context, read)
    page = value.pop("page")
    if session.json_output:
        session.out.json({**value, "shown_version": page["version"], "results": page["cases"]})
        return
    columns = [TableColumn("CASE"), TableColumn("INPUT", flexible=True), TableColumn("EXPECTED", flexible=True)]
    rows = [[one_line(row["case"]), _line(row["input"]), _line(row["expected"])] for row in page["cases"]]
    session.out.table(columns, rows)
    session.out.line()
    session.out.line(f"{one_line(value['name'])} version {page['version']}: {plural(value['cases'], 'case')}.", "bold")
    if value["description"]:
        session.out.line(one_line(value["description"]))
    if page["next"]:
        session.out.note("There are more cases. Use a larger --limit, or `lockstitch dataset export`.")


@dataset.command(epilog=examples("lockstitch dataset versions questions"))
def versions(context: typer.Context, name: Name, limit: Limit = 50) -> None:
    """List the versions of a dataset, newest first. Each change of cases makes one."""
    session = session_of(context)
    page = _call(context, lambda datasets: datasets.versions(name, limit=min(limit, 1000)))
    if session.json_output:
        session.out.json(page["versions"])
        return
    titles = ("VERSION", "CASES", "ADDED", "CHANGED", "REMOVED")
    fields = ("number", "examples", "added", "replaced", "removed")
    session.out.table(
        [*(TableColumn(title, right=True) for title in titles), TableColumn("TIME")],
        [[*(f"{row[field]:,}" for field in fields), time(parse_time(row["created_at"]))] for row in page["versions"]],
    )


@dataset.command(
    epilog=examples(
        "lockstitch dataset create questions --description 'Questions of customers'",
        "lockstitch dataset create questions --file questions.jsonl",
    )
)
def create(
    context: typer.Context,
    name: Name,
    file: Annotated[str | None, typer.Option(metavar="FILE", help="The cases: .jsonl or .csv.")] = None,
    description: Description = None,
    rubric: Rubric = None,
) -> None:
    """Create a dataset, empty or with the cases of a file."""
    content = _content(file) if file is not None else None

    async def work(datasets: "Datasets") -> Json:
        created = await datasets.create(name, description=description, rubric=rubric or None)
        if file is None or content is None:
            return created
        try:
            await datasets.upload(created["id"], Path(file).name, content)
        except Refused:
            await datasets.delete(created["id"])
            raise
        return await datasets.get(created["id"])

    value = _call(context, work, create=True)
    session = session_of(context)
    if session.json_output:
        session.out.json(value)
    else:
        session.out.line(f"Created dataset {one_line(value['name'])} with {plural(value['cases'], 'case')}.")


@dataset.command(epilog=examples("lockstitch dataset edit questions --name faq --rubric 'The answer is polite.'"))
def edit(
    context: typer.Context,
    name: Name,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")] = None,
    description: Description = None,
    rubric: Rubric = None,
) -> None:
    """Change the name, the description or the rubric of a dataset. The version stays."""
    fields: dict[str, Any] = {"name": new_name} if new_name is not None else {}
    fields |= {"description": description or None} if description is not None else {}
    fields |= {"rubric": [text for text in rubric if text] or None} if rubric is not None else {}
    if not fields:
        raise Refused("Nothing to change. Pass --name, --description or --rubric.")
    session = session_of(context)
    value = _call(context, lambda datasets: datasets.edit(name, **fields))
    if session.json_output:
        session.out.json(value)
    else:
        session.out.line(f"Changed dataset {one_line(value['name'])}.")


@dataset.command(
    epilog=examples(
        "lockstitch dataset upload questions more.jsonl", "lockstitch dataset upload questions all.csv --replace"
    )
)
def upload(
    context: typer.Context,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The cases: .jsonl or .csv.", show_default=False)],
    replace: Replace = False,
) -> None:
    """Add the cases of a file as one new version. A case with the id of a stored case replaces it."""
    content = _content(file)
    _print_change(
        context,
        _call(
            context,
            lambda datasets: datasets.upload(name, Path(file).name, content, create=True, replace=replace),
            create=True,
        ),
    )


@dataset.command(
    epilog=examples(
        "lockstitch dataset add regressions --thread customer-42",
        "lockstitch dataset add regressions --run 018f6a3e --run 018f6a41",
    )
)
def add(
    context: typer.Context,
    name: Name,
    thread: Annotated[
        list[str] | None,
        typer.Option(metavar="THREAD", help="A thread: its last finished run. Can be repeated.", show_default=False),
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option(metavar="RUN", help="A run. Can be repeated.", show_default=False)
    ] = None,
    existing: Annotated[bool, typer.Option("--existing", help="Do not create the dataset.")] = False,
) -> None:
    """Add runs to a dataset as cases: the input, and the answer as the expected output.

    A run that is a case already is not added again. The dataset is created if it does not exist.
    """
    if not thread and not run:
        raise Refused("Name the runs to add with --thread or --run.")
    session = session_of(context)
    with session.open() as store:
        sources = [str(find_thread(store, text).id) for text in thread or ()]
        sources += [str(find_run(store, text).id) for text in run or ()]
        value = store.portal.call(actions_of(store).datasets().add(name, sources, create=not existing))
    if session.json_output:
        session.out.json(value)
        return
    text = f"Added {plural(len(value['added']), 'case')} to {one_line(value['dataset'])}, version {value['version']}."
    if value["known"]:
        text += f" {plural(len(value['known']), 'run was a case', 'runs were cases')} already."
    session.out.line(text)
    for skipped in value["skipped"]:
        session.out.line(f"Not added: {one_line(skipped['id'])}: {skipped['reason']}.")


@dataset.command(
    epilog=examples(
        "lockstitch dataset put questions sum --input 'What is 2 + 2?' --expected 4",
        "lockstitch dataset put questions sum --rubric 'The answer is a number.'",
    )
)
def put(
    context: typer.Context,
    name: Name,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of the case.", show_default=False)],
    input: Annotated[str | None, typer.Option(metavar="TEXT", help="The message to the agent.")] = None,
    expected: Annotated[str | None, typer.Option(metavar="TEXT|JSON", help="The expected answer.")] = None,
    rubric: Rubric = None,
) -> None:
    """Add a case, or change fields of a case, as a new version."""

    async def work(datasets: "Datasets") -> Json:
        fields: Json = {}
        try:
            stored = await datasets.case(name, case)
        except NotFound:
            if input is None:
                raise
        else:
            names = ("input", "expected", "schema", "rubric", "metadata")
            fields = {field: stored[field] for field in names if stored[field] not in (None, {})}
        changes = {"input": input, "expected": None if expected is None else _value(expected), "rubric": rubric or None}
        fields |= {field: value for field, value in changes.items() if value is not None}
        return await datasets.put(name, [{"id": case, **fields}], create=True)

    _print_change(context, _call(context, work, create=True))


@dataset.command(epilog=examples("lockstitch dataset remove questions sum colour"))
def remove(context: typer.Context, name: Name, cases: Cases) -> None:
    """Remove cases as a new version. Earlier versions still have them."""
    _print_change(context, _call(context, lambda datasets: datasets.remove(name, cases)))


@dataset.command(
    epilog=examples("lockstitch dataset export questions > questions.jsonl", "lockstitch dataset export questions@2")
)
def export(
    context: typer.Context,
    name: Ref,
    format: Annotated[str, typer.Option(metavar="jsonl|csv", help="Format of the file.")] = "jsonl",
) -> None:
    """Print the cases of a dataset as a file."""
    with session_of(context).open() as store:
        text = store.portal.call(actions_of(store).datasets().export(name, form=format))
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())


@dataset.command(epilog=examples("lockstitch dataset delete questions --yes"))
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a dataset with all its versions. Evaluations stay."""
    session = session_of(context)
    if not confirm(f"Delete dataset {one_line(name)} with all its versions?", yes=yes):
        return
    value = _call(context, lambda datasets: datasets.delete(name))
    if session.json_output:
        session.out.json(value)
    else:
        session.out.line(f"Deleted dataset {one_line(value['name'])}.")


def _print_change(context: typer.Context, change: Json) -> None:
    session = session_of(context)
    if session.json_output:
        session.out.json(change)
        return
    name = one_line(change["dataset"])
    if not change["added"] + change["replaced"] + change["removed"]:
        session.out.line(f"{name} is unchanged, version {change['version']}.")
        return
    numbers = f"{change['added']:,} added, {change['replaced']:,} changed, {change['removed']:,} removed"
    session.out.line(f"{name} version {change['version']}: {numbers}.")


def _content(file: str) -> bytes:
    from lockstitch.agents.evals.dataset import read_file

    return read_file(file)


def _value(text: str) -> Any:
    """Return JSON of a list or object as a value, and other texts unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return codec.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else codec.dumps(value).decode()


def _line(value: Any) -> str:
    text = "" if value is None else one_line(_text(value))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
