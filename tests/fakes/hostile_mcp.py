"""An MCP server that goes wrong: python tests/fakes/hostile_mcp.py HOW. Its tool `echo` works; `wrong` does not."""

import json
import os
import sys
import time

how = sys.argv[1] if len(sys.argv) > 1 else ""
TOOLS = [
    {
        "name": name,
        "description": f"{name}s",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    }
    for name in ("echo", "wrong")
]


def say(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(content: str) -> dict[str, object]:
    return {"content": [{"type": "text", "text": content}]}


def go_wrong(number: object) -> None:
    if how == "hang":
        time.sleep(1000)
    elif how == "crash":
        os.abort()
    elif how == "flood":
        while True:
            os.write(1, b"x" * (1 << 20))
    elif how == "notifications":
        while True:
            say(method="notifications/message", params={"data": "x" * 1000})
    elif how == "garbage":
        print("Listening ...", flush=True)
    elif how == "other id":
        say(id="another", result=text("of another call"))
        say(id=number, result=text("mine"))
    elif how == "no content":
        say(id=number, result={"content": "text"})
    elif how == "neither":
        say(id=number)
    elif how == "image":
        say(id=number, result={"content": [{"type": "image", "data": "", "mimeType": "image/png"}]})
    elif how == "long":
        say(id=number, result=text("x" * (1 << 20)))
    elif how == "asks":
        say(id=1, method="ping")
        assert json.loads(sys.stdin.readline())["result"] == {}
        say(id=2, method="sampling/createMessage", params={})
        assert "error" in json.loads(sys.stdin.readline())
        say(id=number, result=text("asked"))
    elif how == "deep":
        print("[" * 100_000, flush=True)
    elif how == "dies afterwards":
        say(id=number, result=text("goodbye"))
        sys.exit(1)
    else:
        say(id=number, error={"code": -32602, "message": "no such text"})


for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message["method"]
    if how == "silent":
        time.sleep(1000)
    if method == "initialize":
        say(id=number, result={"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "hostile"}})
    elif method == "tools/list":
        if how == "no tools":
            say(id=number, result={"tools": []})
        elif how == "endless tools":
            say(id=number, result={"tools": TOOLS * 60, "nextCursor": "more"})
        elif how == "bad name":
            say(id=number, result={"tools": [TOOLS[0] | {"name": "a b\n"}]})
        elif how == "no schema":
            say(id=number, result={"tools": [{"name": "echo"}]})
        else:
            say(id=number, result={"tools": TOOLS})
    elif method == "tools/call":
        if message["params"]["name"] == "echo":
            say(id=number, result=text(message["params"]["arguments"].get("text", "")))
        else:
            go_wrong(number)
