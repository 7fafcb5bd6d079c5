"""The HTTP server: JSON API, ingest of traces, and pages. Needs the extra `server`.

It also has the names that applications need for their own routes and pages.
"""

from lockstitch.errors import missing_extra

try:
    from lockstitch.server.api.events import event_stream_content
    from lockstitch.server.api.messages import one_message_id, position_before, stream_run, wait_for_run
    from lockstitch.server.api.responses import ResponseModel, response_model
    from lockstitch.server.api.responses import Result as ResultModel
    from lockstitch.server.api.schemas import (
        Body,
        ExactJSON,
        IdempotencyKey,
        MessageId,
        TextParam,
        ThreadRefParam,
        TimeParam,
    )
    from lockstitch.server.app import create_app, router
    from lockstitch.server.auth import Admin, Caller, FormWriter, Reader, Writer, plugin_of
    from lockstitch.server.extensions import HasServerExtension, NavLink, ServerExtension
    from lockstitch.server.pages.common.content import CONTENT_LIMIT
    from lockstitch.server.pages.common.format import day_and_time
    from lockstitch.server.pages.common.forms import FormId, message_id_of
    from lockstitch.server.pages.common.markdown import MarkdownBlock, MarkdownInline, markdown_blocks
    from lockstitch.server.pages.common.open_calls import load_open_calls
    from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
    from lockstitch.server.problems import Problem
    from lockstitch.server.settings import Settings
    from lockstitch.server.streams.thread import StreamItem
    from lockstitch.server.streams.thread_events import ThreadEvents
except ModuleNotFoundError as exc:
    raise missing_extra(exc, "The server", "server") from exc

__all__ = [
    "CONTENT_LIMIT",
    "Admin",
    "Body",
    "Caller",
    "ExactJSON",
    "FormId",
    "FormWriter",
    "HasServerExtension",
    "IdempotencyKey",
    "MarkdownBlock",
    "MarkdownInline",
    "MessageId",
    "NavLink",
    "Problem",
    "Reader",
    "ResponseModel",
    "ResultModel",
    "ServerExtension",
    "Settings",
    "StreamItem",
    "TextParam",
    "ThreadEvents",
    "ThreadRefParam",
    "TimeParam",
    "Writer",
    "base_path",
    "create_app",
    "day_and_time",
    "event_stream_content",
    "is_htmx_request",
    "load_open_calls",
    "markdown_blocks",
    "message_id_of",
    "one_message_id",
    "plugin_of",
    "position_before",
    "redirect_to",
    "render_page",
    "response_model",
    "router",
    "stream_run",
    "wait_for_run",
]
