"""Servers that the official package would not make: `python mcp_by_hand.py MODE [PORT]`, over stdin and stdout.

strict   hangs up on anything but `initialize` as the first message; lists its tools in pages; what its tools do is
         said by the arguments
endless  the same, but its list of tools never ends
bare     the same, but it knows nothing of tools
hang     reads and never answers; holds a connection to PORT meanwhile
crash    says why on stderr, and ends
babble   writes what is no JSON
echo     writes back whatever it reads
"""

import json
import os
import socket
import sys
from typing import Any

TOOLS = [{"name": f"tool{number}", "inputSchema": {"type": "object", "properties": {}}} for number in range(5)]
HELD: list[socket.socket] = []


def speak(mode: str) -> None:
    begun = False
    for line in sys.stdin:
        asked = json.loads(line)
        if not begun and asked["method"] != "initialize":
            sys.exit("expected initialize")
        begun = True
        if "id" in asked:
            answer = answers(asked["method"], asked.get("params") or {}, mode)
            if answer:
                print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)


def answers(method: str, params: dict[str, Any], mode: str) -> dict[str, Any]:
    """What is answered; nothing if the call is held."""
    match method:
        case "initialize":
            about = {"name": "strict", "version": "1"}
            known = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
            return {"result": known}
        case "tools/list" if mode != "bare":
            first = int(params.get("cursor") or 0)
            after = first if mode == "endless" else first + 2
            more = {"nextCursor": str(after)} if after < len(TOOLS) else {}
            return {"result": {"tools": TOOLS[first : first + 2], **more}}
        case "tools/call":
            return does(params["name"], **params["arguments"])
        case _:
            return {"error": {"code": -32601, "message": "unknown"}}


def does(name: str, **given: Any) -> dict[str, Any]:
    match given:
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


def text(said: str) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": said}]}}


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
