#!/usr/bin/env python3
"""Tests Soong with third-party programs: client generators, the SDKs of model providers, MCP servers, nginx,
promtool, llama.cpp with a small model, and a model server that parses the arguments of every earlier tool call, as
llama.cpp and vLLM do.

Needs Python with venv, Node with npm, and their registries. Programs that cannot be installed are reported and
skipped. Argument: the binary. Each wait has a limit.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import venv

HERE = pathlib.Path(__file__).resolve().parent
SOONG = str(pathlib.Path(sys.argv[1]).resolve())
# Maximum duration of one command, including installation, in seconds.
LIMIT = 240


class Skipped(Exception):
    """A program that a check needs cannot be installed."""


def command(*words, fails_with=AssertionError, **more):
    """Runs a command and returns its output."""
    ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL, **more)
    if ran.returncode != 0:
        raise fails_with(f"{' '.join(map(str, words))} ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"[-3000:])
    return ran.stdout + ran.stderr


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, is_there, seconds=30):
    """Waits until `is_there` returns a true value, and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if found := is_there():
                return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {seconds} s")


def listens(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


class Program:
    """A program that runs during a check."""

    def __init__(self, *words, **more):
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def chunks(reply):
    """Returns a model answer as server-sent events."""
    choice, usage = reply["choices"][0], reply["usage"]
    for index, call in enumerate(choice["message"].get("tool_calls") or []):
        call["index"] = index
    deltas = [(choice["message"], None), ({}, choice["finish_reason"])]
    parts = [{"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]
    parts.append({"choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}})
    about = {"id": "chunk", "object": "chat.completion.chunk", "created": 1, "model": "mock"}
    return "".join(f"data: {json.dumps({**about, **part})}\n\n" for part in parts) + "data: [DONE]\n\n"


class Model:
    """A model server. `answer` receives the messages of a request and returns a text or (tool, arguments)."""

    def __init__(self, answer, streamed=False):
        self.refused = []
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, reply = model.reply(body["messages"], answer)
                streams = streamed and status == 200
                reply = (chunks(reply) if streams else json.dumps(reply)).encode()
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if streams else "application/json")
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, messages, answer):
        # As in llama.cpp and vLLM, templates read the arguments of earlier calls as objects.
        for call in (call for message in messages for call in message.get("tool_calls") or []):
            try:
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    raise ValueError("no object")
            except ValueError as error:
                self.refused.append(call["function"]["arguments"])
                return 500, {"error": {"message": f"arguments cannot be parsed: {error}"}}
        said = answer(messages)
        message = {"role": "assistant", "content": said if isinstance(said, str) else None}
        if not isinstance(said, str):
            function = {"name": said[0], "arguments": said[1]}
            message["tool_calls"] = [{"id": f"call_{len(messages)}", "type": "function", "function": function}]
        reason = "stop" if isinstance(said, str) else "tool_calls"
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        return 200, {"choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()


class Server:
    """`soong serve` in a separate home."""

    def __init__(self, world, config, variables):
        self.home = world / "home"
        self.home.mkdir()
        (self.home / "config.toml").write_text(config)
        self.port = free_port()
        words = [SOONG, "--home", self.home, "serve", "--addr", f"127.0.0.1:{self.port}"]
        self.program = Program(*words, cwd=world, env=environment(variables), stdout=subprocess.DEVNULL)
        until("the server", lambda: listens(self.port))
        self.token = (self.home / "server.token").read_text().strip()

    def ask(self, path, body=None, port=None, accept="application/json"):
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json", "accept": accept}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if accept == "application/json" else text

    def run(self, **start):
        """Starts a run and waits until it has ended."""
        run = self.ask("/api/traces", start)["run_id"]

        def ended():
            found = self.ask(f"/api/runs/{run}")
            return found if found["status"] in ("completed", "failed", "cancelled") else None

        return until("the end of a run", ended, 60)

    def __enter__(self):
        return self

    def __exit__(self, *more):
        self.program.__exit__(*more)


def environment(variables=None):
    return {**os.environ, "OPENAI_API_KEY": "k", **(variables or {})}


def tools(world):
    """Installs the pinned packages; returns the folders of their programs."""
    python, node = world / "python", world / "node"
    venv.create(python, with_pip=True)
    pip = [python / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", HERE / "requirements.txt"]
    installing = subprocess.Popen(pip)
    node.mkdir()
    shutil.copy(HERE / "package.json", node)
    try:
        if shutil.which("npm") is None:
            raise Skipped("there is no npm")
        command("npm", "install", "--no-audit", "--no-fund", "--silent", cwd=node, fails_with=Skipped)
    finally:
        if installing.wait(timeout=LIMIT) != 0:
            raise Skipped("the Python packages cannot be installed")
    return python / "bin", node / "node_modules/.bin"


def system_program(name):
    """Returns a system program; installs it if possible."""
    if shutil.which(name) is None and shutil.which("apt-get") and os.geteuid() == 0:
        package = "prometheus" if name == "promtool" else name
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", package]
        with contextlib.suppress(subprocess.TimeoutExpired):
            more = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(install, timeout=LIMIT, env=more, **quiet)
    if shutil.which(name) is None:
        raise Skipped(f"{name} cannot be installed")
    return name


OFFLINE = '[model]\nprovider = "offline"\nname = "offline"\n'


def generated_clients(world, python, node):
    """Client generators accept the OpenAPI document, and the generated clients compile."""
    with Server(world, OFFLINE, {}) as server:
        (world / "openapi.json").write_text(server.ask("/openapi.json", accept="*/*"))
    said = command(python / "openapi-python-client", "generate", "--path", "openapi.json", cwd=world)
    lost = [line for line in said.splitlines() if "WARNING parsing" in line and "/export" not in line]
    assert not lost, said
    command(python / "python", "-m", "compileall", "-q", "soong-client", cwd=world)
    command(node / "openapi-typescript", "openapi.json", "-o", "api.ts", cwd=world)
    command(node / "tsc", "--noEmit", "--strict", "--target", "es2022", "api.ts", cwd=world)


def broken_arguments(world, *_):
    """A tool call with broken arguments does not end a session."""
    broken = ['{"path": "README.md', '{"path": "README.md"}}', '["README.md"]', "", "7"]

    def answer(messages):
        calls = sum(1 for message in messages if message.get("tool_calls"))
        return ("read", broken[calls]) if calls < len(broken) else "done"

    with Model(answer) as model:
        for prompt in ("first", "second"):
            said = command(
                SOONG, "--home", world / "home", "run", "--session", "s", prompt, cwd=world,
                env=environment({"OPENAI_BASE_URL": model.url}),
            )
            assert "done" in said, said
        assert not model.refused, model.refused


def mcp_programs(world, _, node):
    """The official MCP servers list their tools; tools that need a task are left out."""
    (world / "home").mkdir()
    (world / "home/config.toml").write_text(
        f'[mcp.files]\ncommand = "{node}/mcp-server-filesystem"\nargs = ["{world}"]\n'
        f'[mcp.everything]\ncommand = "{node}/mcp-server-everything"\n'
    )
    tested = json.loads(command(SOONG, "--home", world / "home", "--json", "mcp", "test", cwd=world).split("\n\n")[0])
    for server in tested:
        assert server["is_usable"] and server["tools"], server
    names = {tool["name"] for server in tested for tool in server["tools"]}
    assert "mcp.everything.echo" in names and any(name.startswith("mcp.files.") for name in names), names
    for why in (why for server in tested for why in server["left_out"]):
        assert "MCP task" in why, why


def mcp_restart(world, python, _):
    """A restarted server of the Python SDK is used by the next run."""
    port = free_port()

    def answer(messages):
        if messages[-1]["role"] == "tool":
            return messages[-1]["content"]
        return "mcp__adder__add", '{"a": 20, "b": 22}'

    config = f'[mcp.adder]\nurl = "http://127.0.0.1:{port}/mcp"\n'
    adder = [python / "python", HERE / "mcp_server.py", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with Model(answer) as model:
        variables = {"OPENAI_BASE_URL": model.url}
        with Program(*adder, **quiet):
            until("the MCP server", lambda: listens(port))
            server = Server(world, config, variables)
            first = server.run(prompt="add", allow=["mcp.adder.add"])
            assert "42" in first["output"], first
        with server, Program(*adder, **quiet):
            until("the MCP server", lambda: listens(port))
            second = server.run(prompt="add", allow=["mcp.adder.add"])
            assert "42" in second["output"], second


def nginx_buffers(world, *_):
    """Events of an active run pass through nginx with its defaults; behind a buffering nginx, the client polls."""
    nginx, port, buffering = system_program("nginx"), free_port(), free_port()
    with Server(world, OFFLINE, {}) as server:
        location = f"location / {{ proxy_pass http://127.0.0.1:{server.port}; }}"
        (world / "nginx.conf").write_text(
            f"pid {world}/nginx.pid; error_log {world}/error.log; daemon off; events {{}}\n"
            f"http {{ access_log off; client_body_temp_path {world}; proxy_temp_path {world}; fastcgi_temp_path {world};\n"
            f"uwsgi_temp_path {world}; scgi_temp_path {world};\n"
            f"server {{ listen 127.0.0.1:{port}; {location} }}\n"
            f"server {{ listen 127.0.0.1:{buffering}; proxy_ignore_headers X-Accel-Buffering; proxy_buffers 8 64k;\n"
            f"proxy_buffer_size 64k; {location} }} }}\n"
        )
        with Program(nginx, "-c", world / "nginx.conf", "-p", world):
            until("nginx", lambda: listens(port) and listens(buffering))
            for behind, is_polled in [(port, False), (buffering, True)]:
                said = command(
                    SOONG, "--url", f"http://127.0.0.1:{behind}", "run", "hello", cwd=world,
                    env=environment({"SOONG_TOKEN": server.token}),
                )
                assert "completed" in said or "offline" in said, said
                assert ("polling its events instead" in said) == is_polled, said


def litellm(world, *_):
    """A run works through litellm: streamed text, tool calls and usage."""
    if (status := INSTALLING_LITELLM.wait(timeout=LIMIT)) != 0:
        raise Skipped(f"litellm cannot be installed (pip ended with {status})")
    programs, port = pathlib.Path(INSTALLING_LITELLM.args[0]).parent, free_port()

    def answer(messages):
        is_told = any(message["role"] == "tool" for message in messages)
        return "It is README.md." if is_told else ("list_files", json.dumps({"path": "."}))

    with Model(answer, streamed=True) as model:
        (world / "litellm.yaml").write_text(
            "model_list:\n  - model_name: mock\n    litellm_params:\n"
            f"      {{model: openai/mock, api_base: '{model.url}', api_key: k}}\n"
        )
        variables = {
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        words = [programs / "litellm", "--config", world / "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with Program(*words, cwd=world, env={**os.environ, **variables}, **quiet):
            until("litellm", lambda: listens(port), 120)
            config = f'[model]\nname = "mock"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
            with Server(world, config, {}) as server:
                run = server.run(prompt="Which files are there?")
    assert (run["status"], run.get("output")) == ("completed", "It is README.md."), run
    assert (run["usage"]["tool_calls"], run["usage"]["total_tokens"]) == (1, 30), run["usage"]


ANSWER_SCHEMA = {
    "type": "object",
    "properties": {"is_done": {"type": "boolean"}},
    "required": ["is_done"],
    "additionalProperties": False,
}


def llama_cpp(world, *_):
    """A real model on llama.cpp: the server is found and asked, turns reuse its cache, a schema holds, a cancel frees its slot."""
    python = world / "python"
    port = free_port()
    venv.create(python, with_pip=True)
    # One package names others that are built from source, and that the server does not need.
    pip = [python / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    command(*pip, "-r", HERE / "llama.txt", fails_with=Skipped)
    address = f"http://127.0.0.1:{port}"
    home = world / "home"
    project = world / "project"
    project.mkdir()
    (project / "schema.json").write_text(json.dumps(ANSWER_SCHEMA))
    words = [SOONG, "--home", str(home)]

    def soong(*more):
        for _ in range(4):
            ran = subprocess.run([*words, *more], cwd=project, capture_output=True, text=True, timeout=LIMIT, env=variables)
            # One answer in twelve of a model of this size repeats itself, and is stopped.
            if ran.returncode == 0 or "repeats a passage without an end" not in ran.stdout + ran.stderr:
                break
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def slots():
        with urllib.request.urlopen(f"{address}/slots", timeout=5) as reply:
            return [slot["is_processing"] for slot in json.load(reply)]

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    variables = {**os.environ, "OPENAI_BASE_URL": f"{address}/v1"}
    with Program(python / "bin/python", HERE / "llama_server.py", str(port), **quiet):
        until("llama.cpp", slots, 60)
        found = json.loads(soong("init", "--yes", "--json"))
        assert found["model"] == "smollm2", found
        del variables["OPENAI_BASE_URL"]
        usage = []
        for turn in range(3):
            options = ["--json", "--session", "s", "--tools", "", "--output-schema", "schema.json"]
            lines = soong("run", *options, f"Step {turn} is done. Is it done?").splitlines()
            result = json.loads(lines[-1])["result"]
            assert isinstance(json.loads(result["output"])["is_done"], bool), result
            usage.append(result["usage"])
        for before, after in zip(usage, usage[1:]):
            # The template ends the prompt differently, so that its last tokens are read again.
            assert after["cached_tokens"] >= before["prompt_tokens"] - 16, usage
        settings = {row["key"]: row for row in json.loads(soong("config", "show", "--json"))["settings"]}
        for key, value in (("model.context_window", 4096), ("model.max_concurrency", 2)):
            assert (settings[key]["value"], settings[key]["origin"]) == (value, "server"), settings[key]
        story = [*words, "run", "--tools", "", "Write a very long story about the sea."]
        with Program(*story, cwd=project, env=variables, **quiet) as running:
            until("the call", lambda: any(slots()))
            running.process.send_signal(signal.SIGINT)
            begun = time.monotonic()
            until("the free slot", lambda: not any(slots()), 10)
            freed = time.monotonic() - begun
            assert running.process.wait(timeout=30) != 0
        print(f"interop: llama.cpp: cached {[one['cached_tokens'] for one in usage]} of prompts of "
              f"{[one['prompt_tokens'] for one in usage]} tokens; slot freed after {freed:.2f} s", flush=True)


def metrics(world, *_):
    """promtool reports no problem in the metrics."""
    promtool = system_program("promtool")
    with Server(world, OFFLINE, {}) as server:
        server.run(prompt="hello")
        text = server.ask("/metrics", accept="text/plain")
    ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def providers(world, python, _):
    """The providers' SDKs accept each request, and the documented rules of their APIs are kept."""
    command(python / "python", HERE / "providers.py", SOONG)


def main():
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        global INSTALLING_LITELLM
        venv.create(top / "litellm-python", with_pip=True)
        pip = [top / "litellm-python/bin/pip", "install", "-q", "--disable-pip-version-check", "-r", HERE / "litellm.txt"]
        INSTALLING_LITELLM = subprocess.Popen(pip)
        try:
            python, node = tools(top)
        except Skipped as why:
            INSTALLING_LITELLM.kill()
            INSTALLING_LITELLM.wait()
            print(f"interop: skipped: {why}")
            return
        for check in (generated_clients, broken_arguments, providers, mcp_programs, mcp_restart, nginx_buffers, metrics, llama_cpp, litellm):
            world, begun = top / check.__name__, time.monotonic()
            world.mkdir()
            (world / "README.md").write_text("# A project\n")
            try:
                check(world, python, node)
                print(f"interop: {check.__name__}: ok, {time.monotonic() - begun:.1f} s", flush=True)
            except Skipped as why:
                print(f"interop: {check.__name__}: skipped: {why}", flush=True)


main()
