"""Measures how long a confined command takes from start to end, in several binaries of soong.

    python3 examples/bench/bench_commands.py target/release/soong [OTHER_BINARY…] [--rounds N]

Each round runs every binary once, one after the other: a model on this machine has the run call `true` 40 times. Printed
are the median of the rounds' means, in milliseconds, its ratio to the first binary, and the range. Needs no key.
"""

import argparse
import http.server
import json
import os
import statistics
import subprocess
import tempfile
import threading

CALLS = 40


class Model(http.server.BaseHTTPRequestHandler):
    """An OpenAI-compatible service that asks for one command after the other."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = sum(message["role"] == "tool" for message in request["messages"])
        if request.get("tools") and done < CALLS:
            function = {"name": "bash", "arguments": json.dumps({"command": "true"})}
            delta = {"tool_calls": [{"index": 0, "id": f"c{done}", "type": "function", "function": function}]}
            reason = "tool_calls"
        else:
            delta, reason = {"content": "done"}, "stop"
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        chunks = [{"choices": [choice]}, {"choices": [], "usage": usage}]
        body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


def durations(binary, address):
    """Does one run in a home of its own; returns the milliseconds of its calls."""
    with tempfile.TemporaryDirectory() as folder:
        project = os.path.join(folder, "project")
        os.mkdir(project)
        environment = {
            "HOME": folder,
            "LANG": "C.UTF-8",
            "OPENAI_API_KEY": "none-is-needed",
            "OPENAI_BASE_URL": address,
            "PATH": "/usr/bin:/bin",
            "SOONG_AGENT_HOME": os.path.join(folder, "home"),
        }
        command = [os.path.abspath(binary), "run", "--json", "--allow", "bash", "go"]
        ran = subprocess.run(command, env=environment, cwd=project, capture_output=True, text=True, timeout=120)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    found = [event["data"]["duration_ms"] for event in events if event.get("event") == "tool_completed"]
    if len(found) != CALLS:
        raise SystemExit(f"{binary}: {len(found)} of {CALLS} calls were completed\n{ran.stderr}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binaries", nargs="+")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    measured = {binary: [] for binary in options.binaries}
    for _ in range(options.rounds):
        for binary in options.binaries:
            measured[binary].append(statistics.mean(durations(binary, address)))
    first = statistics.median(measured[options.binaries[0]])
    for binary, means in measured.items():
        median = statistics.median(means)
        print(f"{binary}: {median:.1f} ms, {median / first:.2f} of the first ({min(means):.1f} to {max(means):.1f})")


if __name__ == "__main__":
    main()
