"""`serve_stdio`: the MCP server of one store on stdin and stdout."""

from lockstitch.agents import App
from lockstitch.cli.errors import warnings_to_stderr
from lockstitch.cli.session import Session
from lockstitch.integrations.mcp.server import create_mcp_server
from lockstitch.integrations.mcp.tools import McpCaller
from lockstitch.store import QueryResult, open_store


async def serve_stdio(session: Session, agents: App, *, act: bool, force_sql: bool) -> None:
    """Serve until the client closes stdin. Stdout has only messages of the protocol."""
    with warnings_to_stderr(as_json=session.json_output):
        async with open_store(session.url, project=session.project, create=False) as store:

            async def run_sql(query: str, lens: str | None, limit: int) -> QueryResult:
                return await store.sql(query, limit=limit, lens=lens, force=force_sql)

            caller = McpCaller(store, "mcp", run_sql, agents.agent)
            await create_mcp_server(lambda: caller, sql=True, act=act).run_stdio_async()
