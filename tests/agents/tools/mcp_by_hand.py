"""Servers that the official package does not support: `python mcp_by_hand.py MODE [PORT]`, over stdin and stdout.

strict   hangs up on anything but `initialize` as the first message; lists its tools in pages; the arguments of a tool
         define its behaviour
endless  the same, but its list of tools never ends
bare     the same, but without tools
hang     reads and never answers; holds a connection to PORT until it ends
crash    writes a reason to stderr and ends
babble   writes invalid JSON
echo     writes its input back
"""

import json
import os
import socket
import sys
from typing import Any

TOOLS = [{"name": f"tool{number}", "inputSchema": {"type": "object", "properties": {}}} for number in range(5)]
HELD: list[socket.socket] = []


def speak(mode: str) -> None:
    initialized = False
    for line in sys.stdin:
        request = json.loads(line)
        if not initialized and request["method"] != "initialize":
            sys.exit("expected initialize")
        initialized = True
        if "id" in request:
            answer = answers(request["method"], request.get("params") or {}, mode)
            if answer:
                print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)


def answers(method: str, params: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return the answers. A held call has none."""
    match method:
        case "initialize":
            about = {"name": "strict", "version": "1"}
            handshake = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            return {"result": handshake}
        case "tools/list" if mode != "bare":
            first = int(params.get("cursor") or 0)
            after = first if mode == "endless" else first + 2
            more = {"nextCursor": str(after)} if after < len(TOOLS) else {}
            return {"result": {"tools": TOOLS[first : first + 2], **more}}
        case "tools/call":
            return does(params["name"], **params["arguments"])
        case _:
            return {"error": {"code": -32601, "message": "unknown"}}


def does(name: str, **arguments: Any) -> dict[str, Any]:
    match arguments:
        case {"code": code}:
            return {"error": {"code": code, "message": "not today"}}
        case {"nonsense": _}:
            return {"result": {"content": "nonsense"}}
        case {"hold": port}:
            HELD.append(socket.create_connection(("127.0.0.1", port)))
            return {}
        case {"last_words": words}:
            sys.exit(words)
        case {"variable": variable}:
            return text(f"{os.environ.get(variable)} in {os.getcwd()}")
        case _:
            return text(f"{name} by {os.getpid()}")


def text(content: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": content}]}}


def main(mode: str, port: str = "") -> None:
    match mode:
        case "hang":
            held = socket.create_connection(("127.0.0.1", int(port))) if port else None
            sys.stdin.read()
            if held:
                held.close()
        case "crash":
            sys.exit("The variable API_KEY is missing.")
        case "babble":
            print("Welcome to the shell.", flush=True)
        case "echo":
            for line in sys.stdin:
                print(line, end="", flush=True)
        case _:
            speak(mode)


if __name__ == "__main__":
    main(*sys.argv[1:])
