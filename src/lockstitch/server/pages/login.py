"""Login with a token. The cookie is HTTP-only and same-site."""

from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Form, Query, Request
from starlette.responses import Response

from lockstitch.server.auth import TOKEN_COOKIE, check_form
from lockstitch.server.pages.common.render import base_path, redirect_to, render
from lockstitch.server.pages.navbar import page_router
from lockstitch.server.state import server_state

router = page_router()

_DAYS: Final = 30
Next = Annotated[str, Query(max_length=2000)]


@router.get("/login", name="login")
async def login(request: Request, next: Next = "/") -> Response:
    state = server_state(request)
    if not state.settings.tokens_needed:
        return redirect_to(request, inside(next))
    return render(request, "login.html", {"caller": None, "next": inside(next), "wrong": False})


@router.post("/login", dependencies=[Depends(check_form)])
async def enter(
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    next: Annotated[str, Form(max_length=2000)] = "/",
) -> Response:
    """Set the cookie if the token is valid. All invalid tokens get the same response."""
    store = server_state(request).store
    result = await store.tokens.find(token.strip()) if token.strip() else None
    if result is None:
        return render(request, "login.html", {"caller": None, "next": inside(next), "wrong": True}, 401)
    response = redirect_to(request, inside(next))
    left = None if result.expires_at is None else (result.expires_at - store.clock.now()).total_seconds()
    response.set_cookie(
        TOKEN_COOKIE,
        token.strip(),
        path=f"{base_path(request)}/",
        max_age=int(min(_DAYS * 86_400, left or _DAYS * 86_400)),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    await store.in_project(result.project).audits.record(result.name, "login", result.name)
    return response


@router.post("/logout", dependencies=[Depends(check_form)])
async def logout(request: Request) -> Response:
    response = redirect_to(request, "/login")
    response.delete_cookie(TOKEN_COOKIE, path=f"{base_path(request)}/", httponly=True, samesite="strict")
    return response


def inside(path: str) -> str:
    """Return the path if it is a path of this server, else `/`. Prevents open redirects."""
    parts = urlsplit(path)
    odd = "\\" in path or any(ord(sign) < 33 or ord(sign) == 127 for sign in path)
    if parts.scheme or parts.netloc or odd or not path.startswith("/") or path.startswith("//"):
        return "/"
    return "/" if parts.path in ("/login", "/logout") else path
