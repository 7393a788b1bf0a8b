#!/usr/bin/env python3
"""Start a run on a Soong server, follow it to its end, and list the artifacts it stored.

Needs nothing but httpx and websockets:

    pip install httpx websockets
    soong serve &
    python examples/client.py "Report on this project" --mode orchestrator

The token is read from SOONG_TOKEN, else from server.token in the home. Permissions are requested on the terminal;
without a terminal they are denied. After a disconnect the client resumes: no event is missed or received twice.
"""

import argparse
import asyncio
import json
import os
import pathlib
import sys
import uuid

import httpx
import websockets

ENDS = {"run_completed", "run_failed", "run_cancelled"}


def token() -> str:
    if token := os.environ.get("SOONG_TOKEN"):
        return token
    home = os.environ.get("SOONG_AGENT_HOME") or pathlib.Path.home() / ".soong-agent"
    return (pathlib.Path(home) / "server.token").read_text().strip()


def checked(response: httpx.Response) -> dict:
    if response.is_error:
        error = response.json()["error"]
        sys.exit(f"{error['code']}: {error['message']}")
    return response.json()


async def post(client: httpx.AsyncClient, path: str, body: dict) -> httpx.Response:
    """Sends a request that has an effect. If the connection is lost, it is repeated with the same key: without a second
    effect, and with the first answer."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    for delay in (0.2, 1, 3):
        try:
            return await client.post(path, json=body, headers=key)
        except httpx.TransportError as broken:
            print(f"  (connection lost: {broken}; repeating the request)", file=sys.stderr)
            await asyncio.sleep(delay)
    return await client.post(path, json=body, headers=key)


async def events(url: str, bearer: dict, session: str, since: int):
    """Yields each event of a session behind `since`, once and in order, over as many connections as it takes."""
    while True:
        address = f"{url.replace('http', 'ws', 1)}/api/traces/{session}/watch?tree=true&since_session_seq={since}"
        try:
            async with websockets.connect(address, additional_headers=bearer, max_size=None) as socket:
                async for message in socket:
                    event = json.loads(message)
                    if event["event"] == "error":
                        sys.exit(f"{event['data']['error']['code']}: {event['data']['error']['message']}")
                    if number := event.get("session_seq"):
                        since = number
                    yield event
        except (OSError, websockets.WebSocketException) as broken:
            print(f"  (connection lost: {broken}; resuming after event {since})", file=sys.stderr)
        await asyncio.sleep(0.5)


def short(text: str) -> str:
    """Returns the beginning of a text in one line."""
    return " ".join(text.split())[:80]


def line_of(event: dict) -> str | None:
    """Says an event in a line; None = it says little to a person."""
    data = event["data"]
    match event["event"]:
        case "loop_started":
            return f"{data['agent_type']} started, with {data['model']}"
        case "goal_added":
            return f"goal {data['goal']['id']}: {short(data['goal']['description'])}"
        case "tool_started":
            return f"{data['name']} {short(data['arguments_preview'])}"
        case "sub_trace_started":
            return f"starts {data['agent_type']}: {short(data['task'])}"
        case "sub_trace_completed":
            return f"{data['status']}: {short(data['summary'])}"
        case "artifact_saved":
            return f"stored {data['name']}, version {data['version']}"
        case "run_failed":
            return f"failed: {data['error']['message']}"
        case _:
            return None


async def decide(client: httpx.AsyncClient, permission: dict) -> None:
    wanted = f"{permission['tool']} {permission['arguments_preview'][:200]}"
    answer = "n"
    if sys.stdin.isatty():
        answer = await asyncio.to_thread(input, f"allow {wanted}? [y/N] ")
    decision = "allow_once" if answer.lower().startswith("y") else "deny"
    answered = await post(client, f"/api/permissions/{permission['permission_id']}", {"decision": decision})
    if answered.is_error and answered.json()["error"]["code"] != "already_decided":
        checked(answered)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("prompt")
    parser.add_argument("--url", default="http://127.0.0.1:7788")
    parser.add_argument("--session", help="continue this session")
    parser.add_argument("--mode", choices=["normal", "orchestrator"], default="normal")
    parser.add_argument("--path", default=os.getcwd(), help="project folder on the server's machine")
    parser.add_argument("--attach", type=pathlib.Path, help="file to upload as an artifact for the run")
    options = parser.parse_args()
    bearer = {"Authorization": f"Bearer {token()}"}
    async with httpx.AsyncClient(base_url=options.url, headers=bearer, timeout=30) as client:
        session = options.session
        if session is None:
            made = await post(client, "/api/sessions", {"project_dir": options.path})
            session = checked(made)["session"]["session_id"]
        if options.attach:
            files = {"file": (options.attach.name, options.attach.read_bytes())}
            stored = checked(await client.post(f"/api/sessions/{session}/artifacts/upload", files=files))
            print(f"uploaded {stored['name']}, {stored['size']} bytes")
        since = checked(await client.get(f"/api/sessions/{session}"))["session"]["last_session_seq"]
        request = {"prompt": options.prompt, "mode": options.mode, "session_id": session}
        run = checked(await post(client, "/api/traces", request))
        print(f"run {run['run_id']} of session {session}: {run['status']}")
        async for event in events(options.url, bearer, session, since):
            name = event["trace_id"].rpartition("@")[2] if "@" in event.get("trace_id", "") else "run"
            if event["event"] == "permission_requested":
                await decide(client, event["data"])
            if "event_id" in event and (line := line_of(event)):
                print(f"  {name}: {line}")
            if event["event"] in ENDS and event.get("run_id") == run["run_id"]:
                break
        ended = checked(await client.get(f"/api/runs/{run['run_id']}"))
        print(f"\n{ended['status']}\n\n{ended.get('output') or ended.get('error', {}).get('message', '')}")
        for artifact in checked(await client.get(f"/api/sessions/{session}/artifacts"))["artifacts"]:
            print(f"\nartifact {artifact.get('name', artifact['artifact_id'])}: {artifact['size']} bytes")
        if ended["status"] != "completed":
            sys.exit(1)


if __name__ == "__main__":
    asyncio.run(main())
