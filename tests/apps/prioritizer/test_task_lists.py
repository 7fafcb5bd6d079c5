"""Task lists in Markdown and CSV, and their errors."""

import time
from contextlib import suppress

import pytest

from lockstitch.apps.prioritizer.list_parsers import read_list
from lockstitch.apps.prioritizer.task_lists import NESTED, TaskList, estimate_in, slug
from lockstitch.errors import Refused

MARKDOWN = """\
Some words first.

# Checkout
By 1 April.

## Payment
- [ ] T4: Choose the **provider** (3h)
- [ ] Payment form 8 h (after: T4)
  Cards only.
  - [ ] 3-D Secure
    - plain, so a detail
- [x] Refund policy

## Later
* [ ] Receipts (after: payment form, Refund policy; related: T4)
- no task

# Analytics
1. [ ] [ev] Event names (before: Receipts) ~30m
```
- [ ] not a task
```
"""


def related(task_list: TaskList) -> set[tuple[str, str, str, float]]:
    return {(relation.source, relation.target, relation.kind, relation.confidence) for relation in task_list.relations}


def test_reads_tasks_from_markdown() -> None:
    task_list = read_list(MARKDOWN, "plan.md")
    checkout, analytics = task_list.documents
    assert (checkout.title, analytics.title) == ("Checkout", "Analytics")
    assert checkout.text.startswith("# Checkout\nBy 1 April.")
    assert [(task.id, task.title, task.section, task.estimate_hours, task.line) for task in task_list.tasks] == [
        ("T4", "Choose the provider", "Payment", 3, 7),
        ("payment-form", "Payment form", "Payment", 8, 8),
        ("3-d-secure", "3-D Secure", "Payment", None, 10),
        ("receipts", "Receipts", "Later", None, 15),
        ("ev", "Event names", None, 0.5, 19),
    ], "done tasks are not planned"
    assert [task.details for task in task_list.tasks] == ["", "Cards only.", "- plain, so a detail", "", ""]
    assert related(task_list) == {
        ("payment-form", "T4", "prerequisite", 1.0),
        ("payment-form", "3-d-secure", "prerequisite", NESTED),
        ("receipts", "payment-form", "prerequisite", 1.0),
        ("receipts", "T4", "related", 1.0),
        ("receipts", "ev", "blocks", 1.0),
    }, "done tasks are no prerequisites"


def test_reads_a_list_without_boxes() -> None:
    task_list = read_list("- Paint\n- Paint\n\n3) Sand first", "walls.md")
    assert [(task.id, task.title) for task in task_list.tasks] == [
        ("paint", "Paint"),
        ("paint-2", "Paint"),
        ("sand-first", "Sand first"),
    ]
    assert task_list.documents[0].title == "walls"


def test_ids_are_unique_across_documents() -> None:
    task_list = read_list("- [ ] T1: Paint\n- [ ] Sand (after: T1)", "walls two.md", used_ids=["T1", "sand"])
    assert [task.id for task in task_list.tasks] == ["T1@walls-two", "sand-2"]
    assert related(task_list) == {("sand-2", "T1@walls-two", "prerequisite", 1.0)}


def test_resolves_a_letter_before_a_colon() -> None:
    task_list = read_list("- [ ] A: Paint\n- [ ] B: Sand (after: A)\n- [ ] Go (after: b)", "walls.md")
    assert [(relation.source, relation.target) for relation in task_list.relations] == [
        ("b-sand", "a-paint"),
        ("go", "b-sand"),
    ]


CSV = """\
ID;Task;Estimate;Depends on;Project;Status;Notes
T1;Choose the provider;3h;;Checkout;open;"Two
lines"
T2;"Payment; form";1,5;T1;Checkout;;
T3;Old one;;;Checkout;Done;

T4;Events;2d;T1, T3;Analytics;;
"""


def test_reads_tasks_from_csv() -> None:
    task_list = read_list("\ufeff".encode() + CSV.encode(), "plan.CSV")
    assert [document.title for document in task_list.documents] == ["Checkout", "Analytics"]
    assert [(task.id, task.title, task.estimate_hours, task.details) for task in task_list.tasks] == [
        ("T1", "Choose the provider", 3, "Two\nlines"),
        ("T2", "Payment; form", 1.5, ""),
        ("T4", "Events", 16, ""),
    ]
    assert related(task_list) == {("T2", "T1", "prerequisite", 1.0), ("T4", "T1", "prerequisite", 1.0)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.md", "", "no tasks found"),
        ("a.md", "# Only words\n\nNothing to do.", "no tasks found"),
        ("a.md", "- [x] Done", "All 1 are done"),
        ("a.md", "- [ ] Paint (after: paint)", "line 1: “Paint” cannot wait for itself"),
        ("a.md", "- [ ] Paint\n- [ ] Go (after: p)", "line 2: “p” is not a task of this list"),
        ("a.csv", "1,Paint", "a.csv: no column has the tasks"),
        ("a.md", "- [ ] Paint (after: T9)", "line 1: “T9” is not a task of this list"),
        ("a.md", "- [ ] Paint x\n- [ ] Paint y\n- [ ] Go (after: paint)", "line 3: “paint” matches 2 tasks"),
        ("a.md", "- [ ] T1: a\n- [ ] T1: b", "line 1: 2 tasks have the id T1"),
        ("a.md", b"\x89PNG\r\n\x1a\n\x00", "is not UTF-8 text"),
        ("a.md", "- [ ] a\x00b", "it contains NUL"),
        ("a.md", "- [ ] " + "x" * 3_000, "line 1: title"),
        ("a.md", b"x" * 5_000_001, "5,000,001 bytes"),
        ("a.md", "- [ ] a\n" * 2_001, "2,001 tasks"),
        ("a.csv", "", "no tasks found"),
        ("a.csv", "id,when\n1,now", "no column has the tasks. .* Columns: id, when"),
        ("a.csv", 'task\n"open', "not valid CSV"),
        ("a.csv", "task,hours\na,b,c", "line 2: 3 cells for 2 columns"),
        ("a.csv", "task,hours\na,soon", "line 2: 'soon' is not an estimate"),
        ("a.csv", "task,hours\n,3", "line 2: this row has no task"),
        ("a.csv", "task,after\na,a", "line 2: “a” cannot wait for itself"),
        ("a.csv", "task,after\na,b", "line 2: “b” is not a task"),
    ],
)
def test_rejects_invalid_list_with_line(name: str, content: bytes | str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        read_list(content, name)


def test_reads_estimates_at_the_end_of_titles() -> None:
    assert estimate_in("Test it (3h)") == ("Test it", 3)
    assert estimate_in("Test it - 1.5 hours") == ("Test it", 1.5)
    assert estimate_in("Test it ~2d") == ("Test it", 16)
    assert estimate_in("Call 30 m") == ("Call", 0.5)
    assert estimate_in("3h") == ("3h", None)
    assert estimate_in("Version 3") == ("Version 3", None)


def test_slugs_are_short_and_readable() -> None:
    assert slug("Write the ÄPI, docs!") == "write-the-äpi-docs"
    assert slug("…") == "task"
    assert len(slug("word " * 50)) <= 48


@pytest.mark.parametrize(
    "line",
    ["# a" + " " * 50_000 + "x", "- [ ] a (" + "after: " * 20_000, "- [ ] a" + " " * 50_000 + "x", "\n" * 50_000 + "x"],
    ids=["heading", "aside", "spaces", "lines"],
)
def test_reads_or_rejects_adversarial_list_quickly(line: str) -> None:
    started = time.process_time()
    with suppress(Refused):
        read_list(f"{line}\n- [ ] T1: Brief", "tasks.md")
    assert time.process_time() - started < 2


def test_resolves_many_title_prefixes_quickly() -> None:
    text = "".join(f"- [ ] thing {number} of many\n" for number in range(1_500))
    started = time.process_time()
    task_list = read_list(f"{text}- [ ] Last (after: {', '.join(['thing 77 of'] * 20_000)})\n", "tasks.md")
    assert time.process_time() - started < 2
    assert [relation.target for relation in task_list.relations] == ["thing-77-of-many"]


def test_distinguishes_ids_that_differ_in_case() -> None:
    task_list = read_list("- [ ] a (id: x)\n- [ ] b (id: X)\n- [ ] c (after: x)\n- [ ] d (after: X)\n", "tasks.md")
    assert [(relation.source, relation.target) for relation in task_list.relations] == [("c", "x"), ("d", "X")]


def test_title_keeps_other_parentheses() -> None:
    (task, _) = read_list("- [ ] Test (all of it) (id: t) now\n- [ ] Brief ## of # it #\n", "tasks.md").tasks
    assert (task.id, task.title) == ("t", "Test (all of it) now")
