"""The HTTP server: JSON API, ingest of traces, and pages. Needs the extra `server`.

It also has the names that applications need for their own routes and pages.
"""

from lockstitch.server.api.messages import stream_run, wait_for_run
from lockstitch.server.api.schemas import Body, ExactJSON, TextParam, ThreadRefParam, TimeParam
from lockstitch.server.app import create_app, router
from lockstitch.server.auth import Admin, Caller, FormWriter, Reader, Writer, plugin_of
from lockstitch.server.extensions import HasServerExtension, NavLink, ServerExtension
from lockstitch.server.pages.common.render import base_path, is_htmx_request, redirect_to, render_page
from lockstitch.server.problems import Problem
from lockstitch.server.settings import Settings

__all__ = [
    "Admin",
    "Body",
    "Caller",
    "ExactJSON",
    "FormWriter",
    "HasServerExtension",
    "NavLink",
    "Problem",
    "Reader",
    "ServerExtension",
    "Settings",
    "TextParam",
    "ThreadRefParam",
    "TimeParam",
    "Writer",
    "base_path",
    "create_app",
    "is_htmx_request",
    "plugin_of",
    "redirect_to",
    "render_page",
    "router",
    "stream_run",
    "wait_for_run",
]
