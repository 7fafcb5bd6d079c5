"""A chat server in one file: own routes for your users, and the pages of Lockstitch for you.

    python examples/fastapi_chat.py      then open http://127.0.0.1:8000/agents/

    curl -N http://127.0.0.1:8000/chats/ada -H 'Content-Type: application/json' -d '{"message": "Hello"}'
    curl http://127.0.0.1:8000/chats/ada

The model is scripted, so no key is needed. MODEL=openai:gpt-5-mini uses a real model. Needs lockstitch[server].
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from lockstitch import Agent, App, Store, open_store
from lockstitch.ext import ModelRequest, text_of
from lockstitch.server import router
from lockstitch.testing import Scripted


def echo(request: ModelRequest) -> dict[str, Any]:
    return {"text": f"You said: {text_of(request.messages[-1])}", "chunk": 6}


helper = Agent("helper", model=os.environ.get("MODEL") or Scripted(echo), on_busy="queue", title=False)
store: Store = open_store(os.environ.get("LOCKSTITCH_STORE", "sqlite:///chat.db"))


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
    async with store:
        yield


server = FastAPI(lifespan=lifespan)


class NewMessage(BaseModel):
    message: str
    message_id: str | None = None  # the same id twice starts one run


@server.post("/chats/{chat}")
async def send(chat: str, new: NewMessage) -> StreamingResponse:
    """Send a message, and stream the text of the answer."""

    async def text() -> AsyncGenerator[str]:
        async for event in helper.stream(new.message, store=store, thread=chat, message_id=new.message_id):
            if event.type == "text":
                yield event.data["text"]

    return StreamingResponse(text(), media_type="text/plain")


@server.get("/chats/{chat}")
async def history(chat: str) -> list[dict[str, Any]]:
    """Return the turns of a chat, newest first."""
    return [{"user": turn.user_message, "answer": turn.final_response} for turn in (await store.history(chat)).turns]


server.include_router(router(store, App([helper])), prefix="/agents")  # pages, JSON API and a worker

if __name__ == "__main__":
    uvicorn.run(server, port=int(os.environ.get("PORT", "8000")), log_level="warning")
