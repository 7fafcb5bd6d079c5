"""The runner of documentation pages: it executes every block and notices wrong output, exit codes and dead servers."""

from pathlib import Path

import pytest

from tests.docs import pages

PAGE = """
# A page

```python title="greet.py"
import sys

print("Hello,", sys.argv[1])
```

```sh
export WHO=Ada PORT=$(echo 127.0.0.1:8765 | cut -d: -f2)
```

```sh
python greet.py $WHO
date
```

```text
Hello, Ada
…
```

<!-- test: background http://127.0.0.1:8765/greet.py -->

```sh
python -m http.server --bind 127.0.0.1 $PORT
```

```python
import urllib.request

print(urllib.request.urlopen("http://127.0.0.1:8765/greet.py").status)
```

```text
200
```

<!-- test: model ["Hello from the model."] -->

```python
import asyncio

from lockstitch import Agent, open_store


async def main() -> None:
    async with open_store("sqlite:///agents.db") as store:
        print((await Agent("a", model="openai:gpt-5").run("Hi", store=store)).output_text)


asyncio.run(main())
```

```text
Hello from the model.
```

<!-- test: stderr -->
<!-- test: exit 3 -->

```sh
export LATER=evening
echo "NAME      AGE"
echo failed >&2
exit 3
```

```text
NAME  AGE
failed
```

```sh
echo $LATER
```

```text
evening
```

<!-- test: skip needs a key -->

```sh
exit 1
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def run(page: Path, folder: Path) -> None:
    folder.mkdir()
    pages.run_page(page, folder)


def test_executes_every_block(page: Path, tmp_path: Path) -> None:
    run(page, tmp_path / "folder")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Hello, Ada\n…", "Hello, Bob\n…", "line 14: expected"),
        ("python greet.py $WHO", "python greets.py", "line 14: exit code 2"),
        ("print(urllib", "print(1 / 0, urllib", "exit code 1"),
        ("NAME  AGE", "NAME AGE", "expected"),
        ("\nfailed\n", "\nworked\n", "expected"),
    ],
)
def test_reports_line_of_wrong_block(page: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in PAGE
    page.write_text(PAGE.replace(old, new))
    with pytest.raises(AssertionError, match=message):
        run(page, tmp_path / "folder")
