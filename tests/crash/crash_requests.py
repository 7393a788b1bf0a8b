#!/usr/bin/env python3
"""Kills a server with `kill -9` in the middle of requests, over and over, and checks that what it acknowledged holds.

    tests/crash/crash_requests.py SOONG [KILLS=200] [SEED]

Each round starts a server on the home of the round before, sends starts, cancels, answers, decisions, forks, uploads and
deletions at the same time, and kills the server at a random moment. A new home is begun after 100 rounds: first the
server of the old one is left alone until no run is at work, and then everything that was acknowledged is looked up. The
model is a thread of this program. Prints what was acknowledged and what did not hold; exits with 1 if anything did not.
"""

import concurrent.futures
import datetime
import http.client
import http.server
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS_OF_A_HOME = 100
CLIENTS = 6
PATIENCE_S = 120


class Model(http.server.BaseHTTPRequestHandler):
    """Answers as the first word of the task says: `ask`, `write`, `slow`, or anything else."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        messages = body["messages"]
        last_user = max(place for place, message in enumerate(messages) if message["role"] == "user")
        word = str(messages[last_user]["content"]).split(" ")[0]
        is_first = all(message["role"] != "assistant" for message in messages[last_user:])
        delta, reason = {"content": "done"}, "stop"
        if is_first and word in ("ask", "write"):
            arguments = {"question": "Which?"} if word == "ask" else {"path": "notes.txt", "content": "x"}
            name = "ask_human" if word == "ask" else "write"
            call = {"index": 0, "id": "c1", "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)}}
            delta, reason = {"tool_calls": [call]}, "tool_calls"
        elif word == "slow":
            time.sleep(0.3)
        chunks = [
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        ]
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        try:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
        except OSError:
            pass  # the server was killed


class ModelServer(http.server.ThreadingHTTPServer):
    """Does not complain of clients that were killed."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        pass


class Server:
    """A server over a home, and how to speak to it."""

    def __init__(self, soong, home):
        command = [soong, "--home", str(home), "serve", "--json", "--addr", "127.0.0.1:0"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home.parent)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        cwd=home.parent / "project", env=environment)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start, exit {self.process.wait()}")
        self.address = json.loads(line)["url"].removeprefix("http://")
        self.token = (home / "server.token").read_text().strip()

    def ask(self, method, path, body=None):
        """Returns status and body; raises an error where no whole answer came."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        try:
            headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Acknowledged:
    """What servers have acknowledged, over all kills of a home."""

    def __init__(self):
        self.lock = threading.Lock()
        self.runs, self.cancelled, self.answered, self.decided = {}, {}, {}, {}
        self.deleted, self.perhaps_deleted, self.forked, self.uploaded = set(), set(), set(), set()

    def note(self, change):
        with self.lock:
            change()


def quoted(name):
    return name.replace("@", "%40")


def client(server, seen, chance, counts):
    """Sends requests until the server is gone."""
    number = 0
    try:
        while True:
            number += 1
            session = f"s-{chance.getrandbits(48):x}"
            word = chance.choice(["slow", "slow", "ask", "write", "quick"])
            status, run = server.ask("POST", "/api/traces", {"prompt": f"{word} it", "session_id": session})
            if status != 202:
                continue
            run = run["run_id"]
            seen.note(lambda: seen.runs.__setitem__(run, session))
            counts["starts"] += 1
            acts = ["cancel", "cancel", "stop", "fork", "delete", "delete", "upload", "people", "people", "nothing"]
            act = chance.choice(acts)
            if act in ("cancel", "stop"):
                path = f"/api/runs/{run}/cancel" if act == "cancel" else f"/api/traces/{session}/stop"
                status, _ = server.ask("POST", path)
                if status == 202:
                    seen.note(lambda: seen.cancelled.__setitem__(run, time.time()))
                    counts["cancels"] += 1
            elif act == "fork":
                copy = f"{session}-copy"
                status, _ = server.ask("POST", f"/api/sessions/{session}/fork", {"session_id": copy})
                if status == 201:
                    seen.note(lambda: seen.forked.add(copy))
                    counts["forks"] += 1
            elif act == "upload":
                status, _ = server.ask("PUT", f"/api/sessions/{session}/artifacts/note", f"text of {session}")
                if status == 201:
                    seen.note(lambda: seen.uploaded.add(session))
                    counts["uploads"] += 1
            elif act == "delete":
                # One of any round: most of them have ended.
                with seen.lock:
                    old = chance.choice(list(seen.runs.values()))
                # Whatever the answer, it may be carried out.
                seen.note(lambda: seen.perhaps_deleted.add(old))
                status, _ = server.ask("DELETE", f"/api/sessions/{old}")
                if status == 204:
                    seen.note(lambda: seen.deleted.add(old))
                    counts["deletions"] += 1
            elif act == "people":
                answer_people(server, seen, chance, counts)
    except (OSError, http.client.HTTPException, ValueError):
        return  # the server is gone


def answer_people(server, seen, chance, counts):
    for question in server.ask("GET", "/api/questions?status=pending")[1]["questions"][:2]:
        name, answer = question["question_id"], f"answer {chance.getrandbits(32)}"
        status, _ = server.ask("POST", f"/api/questions/{quoted(name)}", {"answer": answer})
        if status == 200:
            seen.note(lambda: seen.answered.__setitem__(name, answer))
            counts["answers"] += 1
    for asked in server.ask("GET", "/api/permissions?status=pending")[1]["permissions"][:2]:
        name, decision = asked["permission_id"], chance.choice(["allow_once", "deny"])
        status, _ = server.ask("POST", f"/api/permissions/{quoted(name)}", {"decision": decision})
        if status == 200:
            seen.note(lambda: seen.decided.__setitem__(name, decision))
            counts["decisions"] += 1


def settle(server, chance, counts, seen):
    """Answers what is asked until no run is at work."""
    deadline = time.time() + PATIENCE_S
    while time.time() < deadline:
        answer_people(server, seen, chance, counts)
        if not server.ask("GET", "/api/traces/running?limit=1")[1]["traces"]:
            return []
        time.sleep(0.02)
    left = server.ask("GET", "/api/traces/running?limit=5")[1]["traces"]
    return [f"still running: {trace['trace_id']}" for trace in left]


def check(server, seen):
    """Looks up everything that was acknowledged."""
    wrong = []
    for run, session in seen.runs.items():
        status, found = server.ask("GET", f"/api/runs/{run}")
        if status == 404 and session in seen.perhaps_deleted:
            continue
        if status != 200:
            wrong.append(f"start lost: {run} of {session}: {status}")
        elif found["status"] not in ("completed", "cancelled"):
            wrong.append(f"run {run} is {found['status']}: {found.get('error')}")
        elif run in seen.cancelled and found["status"] != "cancelled":
            # It may have ended at the same moment, but not later and without the request.
            events = server.ask("GET", f"/api/traces/{session}/events?limit=1000")[1]["events"]
            kinds = [event["event"] for event in events if event.get("run_id") == run]
            ended = datetime.datetime.fromisoformat(found["completed_at"]).timestamp()
            if ended > seen.cancelled[run] and "cancel_requested" not in kinds:
                wrong.append(f"cancel lost: {run} is {found['status']}: {kinds}")
    for session in seen.deleted:
        if server.ask("GET", f"/api/sessions/{session}")[0] != 404:
            wrong.append(f"deletion lost: {session}")
    for session in seen.forked:
        if server.ask("GET", f"/api/sessions/{session}")[0] != 200:
            wrong.append(f"fork lost: {session}")
    for session in seen.uploaded - seen.perhaps_deleted:
        status, found = server.ask("GET", f"/api/sessions/{session}/artifacts/note")
        if status != 200 or session not in found["content"]:
            wrong.append(f"upload lost: {session}: {status}")
    totals = {by: server.ask("GET", f"/api/usage?by={by}")[1]["total"] for by in ("day", "model", "session")}
    if len({(total["runs"], total["total_tokens"]) for total in totals.values()}) != 1:
        wrong.append(f"sums of usage differ: {totals}")
    questions = {one["question_id"]: one for one in server.ask("GET", "/api/questions")[1]["questions"]}
    for name, answer in seen.answered.items():
        if name in questions and questions[name]["answer"] != answer:
            wrong.append(f"answer lost: {name}: {questions[name]}")
    permissions = {one["permission_id"]: one for one in server.ask("GET", "/api/permissions")[1]["permissions"]}
    for name, decision in seen.decided.items():
        if name in permissions and permissions[name]["decision"] != decision:
            wrong.append(f"decision lost: {name}: {permissions[name]}")
    return wrong


def main():
    soong = str(pathlib.Path(sys.argv[1]).resolve())
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    chance = random.Random(seed)
    model = ModelServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    config = f'[model]\nbase_url = "http://127.0.0.1:{model.server_port}/v1"\nname = "m"\n'
    names = ["kills", "starts", "cancels", "answers", "decisions", "forks", "uploads", "deletions"]
    counts, wrong, begun = dict.fromkeys(names, 0), [], time.time()
    while counts["kills"] < kills:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="crash-requests-"))
        home, seen = folder / "home", Acknowledged()
        home.mkdir()
        (folder / "project").mkdir()
        (home / "config.toml").write_text(config)
        for _ in range(min(ROUNDS_OF_A_HOME, kills - counts["kills"])):
            server = Server(soong, home)
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                chances = [random.Random(chance.getrandbits(64)) for _ in range(CLIENTS)]
                for one in chances:
                    pool.submit(client, server, seen, one, counts)
                time.sleep(chance.uniform(0.01, 0.3))
                server.kill()
            counts["kills"] += 1
        server = Server(soong, home)
        found = settle(server, chance, counts, seen) + check(server, seen)
        server.kill()
        if found:
            wrong += found
            print(f"{folder}: {found[:3]}", flush=True)
        else:
            shutil.rmtree(folder)
        print(f"seed {seed}, {time.time() - begun:.0f} s: {counts}, {len(wrong)} violations", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
