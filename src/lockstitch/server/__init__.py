"""The server: the record over HTTP, traces in, and pages. Needs the extra `server`.

What an application needs to bring routes and pages of its own is here too.
"""

from lockstitch.server.api.messages import followed, waited
from lockstitch.server.api.schemas import Body, Exact, Moment, Plain, Ref
from lockstitch.server.app import create, router
from lockstitch.server.auth import Actor, Admin, Caller, Reader, Writer, the
from lockstitch.server.extensions import Annex, Section, Serves
from lockstitch.server.pages.common.render import back, base_of, is_part, page
from lockstitch.server.problems import Problem
from lockstitch.server.settings import Settings

__all__ = [
    "Actor",
    "Admin",
    "Annex",
    "Body",
    "Caller",
    "Exact",
    "Moment",
    "Plain",
    "Problem",
    "Reader",
    "Ref",
    "Section",
    "Serves",
    "Settings",
    "Writer",
    "back",
    "base_of",
    "create",
    "followed",
    "is_part",
    "page",
    "router",
    "the",
    "waited",
]
