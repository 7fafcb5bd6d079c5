"""Files of a run: from the provider or a tool, into a folder or a bucket, and in the thread's list of files."""

from pathlib import Path

import pytest

from lockstitch.agents.registry import file_store
from lockstitch.agents.tools.function import tool
from lockstitch.engine.ports.tool import ToolContext
from lockstitch.model import call_key, format_time
from lockstitch.store import Store, open_store
from tests.agents.conftest import Claude
from tests.agents.fake_api import Answer, FakeApi
from tests.agents.file_stores.bucket import Bucket
from tests.agents.file_stores.conftest import bucket, s3_url
from tests.engine.agents import calls, config_of, log, scripted, turn_of

__all__ = ["bucket", "s3_url"]

pytestmark = pytest.mark.anyio

SAID = {"type": "text", "text": "Here it is."}


def executed(*file_ids: str) -> Answer:
    """Return a response of a model that ran code which created these files."""
    outputs = [{"type": "bash_code_execution_output", "file_id": file_id} for file_id in file_ids]
    result = {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": outputs}
    block = {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": result}
    call = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "plot"}}
    return Answer([call, block, SAID])


@pytest.mark.req("S0-025", "S0-026", "S0-066", "S0-141", "X0-20")
async def test_stores_files_of_code_execution(store_url: str, api: FakeApi, claude: Claude, tmp_path: Path):
    api.files = {"file_1": ("chart.png", "image/png", b"\x89PNG one"), "file_2": ("../a b.csv", "text/csv", b"a,b")}
    api.answer(executed("file_1", "file_2", "file_gone"), executed("file_1"))
    async with open_store(store_url) as store:
        helper = claude(files=f"file:{tmp_path / 'files'}", beta_headers=["files-api-2025-04-14"])
        first = await helper.run("Plot", store=store, thread="t")
        assert (first.status, first.output_text) == ("completed", "Here it is.")
        assert [generated_file["file_id"] for generated_file in first.generated_files] == ["file_1", "file_2"]
        keys = {"file_id", "filename", "storage_path", "size", "mime_type", "step", "timestamp"}
        for file_json in first.generated_files:
            assert file_json.keys() == keys
            assert file_json["step"] == 1
            path = Path(file_json["storage_path"])
            assert path.parent == tmp_path / "files" / str(first.thread_id)
            assert path.read_bytes() == api.files[file_json["file_id"]][2]
            assert path.name.startswith(f"{file_json['file_id']}_")
        assert (first.generated_files[0]["size"], first.generated_files[0]["mime_type"]) == (8, "image/png")
        (error,) = await log(store, "file_error")
        assert (error.data["file_id"], error.data["type"]) == ("file_gone", "ProviderError")
        before = {file.file_id: file for file in await store.files.list(thread_id=first.thread_id)}
        api.files["file_1"] = ("chart.png", "image/png", b"\x89PNG two")
        second = await helper.run("Again", store=store, thread="t")
        assert [generated_file["file_id"] for generated_file in second.generated_files] == ["file_1"]
        after = {file.file_id: file for file in await store.files.list(thread_id=first.thread_id)}
        assert after["file_2"] == before["file_2"]
        changed, old_file = after["file_1"], before["file_1"]
        assert (changed.created_in_run, changed.created_at) == (first.run_id, old_file.created_at)
        assert (changed.last_updated_run, changed.last_updated_at > old_file.last_updated_at) == (second.run_id, True)
        assert Path(changed.storage_path or "").read_bytes() == b"\x89PNG two"
        turns = (await store.history("t")).turns
        # The first run still shows the file as it was then.
        assert [turn.generated_files for turn in turns] == [second.generated_files, first.generated_files]
        for result in (first, second):
            assert (await turn_of(store, store_url, result.run_id))["generated_files"] == result.generated_files
        assert [file["timestamp"] for file in second.generated_files] == [format_time(changed.last_updated_at)]
        registry = (await config_of(store, store_url, "t"))["file_registry"]
        assert registry.keys() == {"file_1", "file_2"}
        assert registry["file_1"] == {
            "filename": "chart.png",
            "storage_path": changed.storage_path,
            "size": 8,
            "mime_type": "image/png",
            "created_in_run": str(first.run_id),
            "last_updated_run": str(second.run_id),
            "last_updated_at": format_time(changed.last_updated_at),
        }


@pytest.mark.req("S0-142")
async def test_stores_files_in_bucket(store: Store, api: FakeApi, claude: Claude, bucket: Bucket):
    api.files = {"file_1": ("chart.png", "image/png", b"png")}
    api.answer(executed("file_1"))
    result = await claude(files=bucket.url("agents/files")).run("Plot", store=store, thread="t")
    (generated,) = result.generated_files
    assert generated["storage_path"] == f"s3://agent-files/agents/files/{result.thread_id}/file_1_chart.png"
    assert bucket.listed() == [f"agents/files/{result.thread_id}/file_1_chart.png"]
    assert await file_store(bucket.url("agents/files")).retrieve(generated["storage_path"]) == b"png"


@pytest.mark.req("S0-066")
async def test_stores_files_of_tools_with_their_results(store: Store, store_url: str, tmp_path: Path):
    @tool
    def draw(ctx: ToolContext) -> str:
        """Draw."""
        ctx.save_file("a.txt", b"one")
        ctx.save_file("b.txt", b"two", mime_type="text/plain", file_id="same")
        return "drawn"

    helper = scripted(calls("draw"), calls("draw"), "Done.", tools=[draw], files=f"file:{tmp_path}")
    result = await helper.run("Go", store=store, thread="t")
    first, second = [call_key(stitch.id, 0) for stitch in await log(store, "llm_call") if stitch.calls]
    steps = {generated_file["file_id"]: generated_file["step"] for generated_file in result.generated_files}
    assert steps == {f"{first}-1": 1, f"{second}-1": 2, "same": 2}
    assert (await log(store, "run_completed"))[0].data["files_generated"] == 3
    assert (await turn_of(store, store_url, result.run_id))["generated_files"] == result.generated_files


@pytest.mark.req("S0-111")
async def test_records_files_without_file_store(store: Store, api: FakeApi, claude: Claude):
    api.files = {"file_1": ("chart.png", "image/png", b"png")}
    api.answer(executed("file_1"))
    result = await claude().run("Plot", store=store, thread="t")
    assert [
        (generated_file["file_id"], generated_file["storage_path"]) for generated_file in result.generated_files
    ] == [("file_1", None)]
    assert [stitch.type for stitch in await log(store, "file_generated", "file_downloaded", "file_stored")] == [
        *("file_generated", "file_downloaded"),
    ]
