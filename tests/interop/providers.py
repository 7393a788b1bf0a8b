#!/usr/bin/env python3
"""Tests the APIs of models against a service that enforces the documented rules of each provider.

Each request is parsed with the types of the provider's own SDK, unknown fields included, and checked against the rules
that the types do not express: pairing of calls and results, returned signatures, order of thinking, cache marks. Answers
have the form of each provider's stream.

Needs the packages anthropic, openai and google-genai. Argument: the binary.
"""

import base64
import hashlib
import http.server
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import anthropic.types as anthropic_types
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pydantic
from google.genai import types as gemini_types
from typing_extensions import is_typeddict

SOONG = str(pathlib.Path(sys.argv[1]).resolve())
LIMIT = 60
# A red pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
SKIPPED = "skip_thought_signature_validator"


class Refused(Exception):
    """The request breaks a rule of the provider."""


def check(holds, message):
    if not holds:
        raise Refused(message)


def strict(root, *modules):
    """Returns a validator of an SDK's type that rejects unknown fields."""
    for module in modules:
        for value in vars(module).values():
            if is_typeddict(value):
                value.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return pydantic.TypeAdapter(root)


def typed_dicts_of(package):
    """Returns all modules of an SDK's package of types."""
    names = [name for name in sys.modules if name.startswith(package.__name__)]
    return [sys.modules[name] for name in names]


ANTHROPIC = strict(
    anthropic_types.message_create_params.MessageCreateParamsStreaming, *typed_dicts_of(anthropic_types)
)
CHAT = strict(chat_types.completion_create_params.CompletionCreateParamsStreaming, *typed_dicts_of(chat_types))
RESPONSES = strict(
    responses_types.response_create_params.ResponseCreateParamsStreaming, *typed_dicts_of(responses_types)
)


def without_marks(value):
    """Returns JSON without cache marks."""
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        marks = ("cache_control", "prompt_cache_breakpoint")
        return {key: without_marks(item) for key, item in value.items() if key not in marks}
    return value


def digest(*parts):
    """Returns a signature of JSON values. Cache marks do not count."""
    text = json.dumps(without_marks(list(parts)), sort_keys=True)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Plan:
    """What the model does: it reads two files at once, twice, and then answers."""

    STEPS = [
        [("read", {"path": "a.txt"}), ("read", {"path": "picture.png"})],
        [("list_files", {}), ("read", {"path": "b.txt"})],
    ]

    @classmethod
    def step(cls, steps_done, prefix):
        """Returns the calls after this many steps of the turn, with ids that are unique in the conversation."""
        calls = cls.STEPS[steps_done] if steps_done < len(cls.STEPS) else []
        return [(f"{prefix}{number}", name, arguments) for number, (name, arguments) in enumerate(calls)]


class Anthropic:
    path = re.compile(r"^/v1/messages$")

    @staticmethod
    def check(body, headers, path):
        check(headers.get("x-api-key") == "key", "no x-api-key")
        check(headers.get("anthropic-version") == "2026-10-21", "anthropic-version")
        ANTHROPIC.validate_python(body)
        check(not {"temperature", "top_p", "top_k"} & body.keys(), "temperature: Extra inputs are not permitted")
        check(body["thinking"]["type"] == "adaptive", '"thinking.type" is not supported for this model.')
        check(json.dumps(body).count('"cache_control"') in range(1, 5), "1 to 4 blocks with cache_control")
        check("ttl" not in json.dumps(body["tools"]), "ttl")
        messages = body["messages"]
        check(messages[-1]["role"] == "user", "The conversation must end with a user message.")
        check(all(a["role"] != b["role"] for a, b in itertools.pairwise(messages)), "roles alternate")
        seen, has_thinking = set(), False
        for place, message in enumerate(messages):
            blocks = message["content"]
            uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
            check(all(re.fullmatch("[a-zA-Z0-9_-]+", use) for use in uses), "tool_use.id: pattern")
            check(not seen & set(uses) and len(set(uses)) == len(uses), "`tool_use` ids must be unique")
            seen |= set(uses)
            answers = messages[place + 1]["content"] if place + 1 < len(messages) else []
            results = [block["tool_use_id"] for block in answers[: len(uses)] if block["type"] == "tool_result"]
            check(sorted(results) == sorted(uses), f"`tool_use` ids without `tool_result`: {uses}, {results}")
            check(all(block.get("text", "x").strip() for block in blocks), "text content blocks must be non-empty")
            thinking = [block for block in blocks if block["type"] == "thinking"]
            check(not thinking or blocks[0] in thinking, "`thinking` must come first")
            # Kept blocks must be an unbroken run up to the newest answer.
            own = any(use.startswith("toolu_") for use in uses)
            check(thinking or not (own and has_thinking), "Expected `thinking`, but found `tool_use`")
            has_thinking = has_thinking or bool(thinking)
            for block in thinking:
                expected = digest(body["system"], body["tools"], messages[:place])
                bound = "`thinking` blocks in messages are bound to a different conversation"
                check(block["signature"] == expected, f"messages.{place}: {bound}")

    @staticmethod
    def answer(body, calls, text):
        signature = digest(body["system"], body["tools"], body["messages"])
        usage = {"input_tokens": 50, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 1}
        yield {"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": usage}}
        yield {"type": "ping"}
        blocks = [({"type": "thinking", "thinking": "", "signature": ""}, [
            {"type": "thinking_delta", "thinking": ""},
            {"type": "thinking_delta", "thinking": "I wonder – 好."},
            {"type": "signature_delta", "signature": signature},
        ])]
        if text:
            deltas = [{"type": "text_delta", "text": piece} for piece in ["", *re.findall(r".{1,3}", text)]]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for id, name, arguments in calls:
            pieces = ["", *re.findall(r".{1,5}", json.dumps(arguments))] if arguments else [""]
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            block = {"type": "tool_use", "id": f"toolu_{id}", "name": name, "input": {}, "caller": {"type": "direct"}}
            blocks.append((block, deltas))
        for index, (block, deltas) in enumerate(blocks):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            for delta in deltas:
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        delta = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
        details = {"thinking_tokens": 4}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, "output_tokens_details": details}}
        yield {"type": "message_stop"}

    @staticmethod
    def steps_done(body):
        """Returns how many answers of the turn the conversation has."""
        turn = itertools.takewhile(
            lambda message: not (message["role"] == "user" and message["content"][0]["type"] != "tool_result"),
            reversed(body["messages"]),
        )
        return sum(message["role"] == "assistant" for message in turn)

    @staticmethod
    def error(message):
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


class Responses:
    path = re.compile(r"^/v1/responses$")

    @staticmethod
    def check(body, headers, path):
        check(headers.get("authorization") == "Bearer key", "no key")
        RESPONSES.validate_python(body)
        check(body["store"] is False and body["include"] == ["reasoning.encrypted_content"], "store and include")
        check(all(tool["strict"] is False for tool in body["tools"]), "strict")
        items = body["input"]
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        results = [item["call_id"] for item in items if item["type"] == "function_call_output"]
        check(sorted(calls) == sorted(results) and len(set(calls)) == len(calls), "No tool output found")
        ids = [item["id"] for item in items if "id" in item]
        check(len(set(ids)) == len(ids), "Duplicate item found")
        for place, item in enumerate(items):
            follows = items[place + 1] if place + 1 < len(items) else {}
            if item["type"] == "reasoning":
                check("content" not in item, "array too long")
                expected = digest(item["id"], items[:place])
                check(item["encrypted_content"] == expected, "The encrypted content could not be verified")
                required = "of type 'reasoning' was provided without its required following item"
                check(follows.get("id", "").endswith(item["id"][-6:]), required)
            if item["type"] == "message" and item["role"] == "assistant" and "id" in item:
                check(item.get("phase"), "phase")

    @staticmethod
    def answer(body, calls, text):
        number = hashlib.sha256(json.dumps(body["input"]).encode()).hexdigest()[:6]
        id = f"rs_{number}"
        summary = [{"type": "summary_text", "text": "I wonder – 好."}]
        encrypted = digest(id, body["input"])
        items = [{"type": "reasoning", "id": id, "summary": summary, "encrypted_content": encrypted}]
        if text:
            content = [{"type": "output_text", "text": text, "annotations": []}]
            items.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
                          "phase": "final_answer", "content": content})
        for place, (call, name, arguments) in enumerate(calls):
            items.append({"type": "function_call", "id": f"fc_{number if place == 0 else f'{number}_{place}'}",
                          "call_id": f"call_{call}", "name": name, "arguments": json.dumps(arguments),
                          "status": "completed"})
        yield {"type": "response.created", "response": {"status": "in_progress", "output": []}}
        for index, item in enumerate(items):
            started = {key: value for key, value in item.items() if key not in ("summary", "encrypted_content")}
            started |= {"content": []} if item["type"] == "message" else {}
            started |= {"arguments": ""} if item["type"] == "function_call" else {}
            yield {"type": "response.output_item.added", "output_index": index, "item": started}
            of = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "reasoning":
                yield {"type": "response.reasoning_summary_text.delta", "summary_index": 0,
                       "delta": summary[0]["text"], **of}
            if item["type"] == "message":
                for piece in ["", *re.findall(r".{1,3}", text)]:
                    yield {"type": "response.output_text.delta", "content_index": 0, "delta": piece, "logprobs": [], **of}
            if item["type"] == "function_call":
                for piece in re.findall(r".{1,5}", item["arguments"]):
                    yield {"type": "response.function_call_arguments.delta", "delta": piece, **of}
            yield {"type": "response.output_item.done", "output_index": index, "item": item}
        details = {"cached_tokens": 30, "cache_write_tokens": 20}
        usage = {"input_tokens": 100, "input_tokens_details": details, "output_tokens": 9,
                 "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 109}
        yield {"type": "response.completed", "response": {"status": "completed", "output": items, "usage": usage}}

    @staticmethod
    def steps_done(body):
        turn = itertools.takewhile(
            lambda item: not (item["type"] == "message" and item["role"] == "user"), reversed(body["input"])
        )
        groups = itertools.groupby(turn, lambda item: item["type"] == "function_call_output")
        return sum(is_result for is_result, _ in groups)

    @staticmethod
    def error(message):
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


class Gemini:
    path = re.compile(r"^/v1/models/gemini-3.8-flash:streamGenerateContent\?alt=sse$")

    @staticmethod
    def check(body, headers, path):
        check(headers.get("x-goog-api-key") == "key", "no key")
        parts = {"contents", "systemInstruction", "tools", "generationConfig"}
        check(body.keys() <= parts, f"Unknown name {body.keys() - parts}: Cannot find field.")
        for content in [*body["contents"], body["systemInstruction"]]:
            gemini_types.Content.model_validate(content)
        for tool in body["tools"]:
            gemini_types.Tool.model_validate(tool)
        gemini_types.GenerationConfig.model_validate(
            {key: value for key, value in body["generationConfig"].items() if key != "responseJsonSchema"}
        )
        contents = body["contents"]
        check(contents[0]["role"] == "user" and contents[-1]["role"] == "user", "ending with a model turn")
        for place, content in enumerate(contents):
            check(content["parts"], "contents.parts must not be empty.")
            for part in content["parts"]:
                data = part.keys() & {"text", "inlineData", "functionCall", "functionResponse"}
                check(len(data) == 1, "required oneof field 'data' must have one initialized field")
                check(part.get("text") != "" or "thoughtSignature" in part, "empty text")
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls:
                signature = calls[0].get("thoughtSignature")
                expected = digest(contents[:place], calls[0]["functionCall"]["id"])
                check(signature, "Function call is missing a thought_signature in functionCall parts.")
                check(signature in (SKIPPED, expected), "Corrupted thought signature.")
                check(not any("thoughtSignature" in call for call in calls[1:]), "one signature")
                answers = contents[place + 1]["parts"]
                check(all("functionResponse" in part for part in answers), "text among results")
                names = [(call["functionCall"]["id"], call["functionCall"]["name"]) for call in calls]
                given = [(part["functionResponse"]["id"], part["functionResponse"]["name"]) for part in answers]
                check(sorted(names) == sorted(given), "number of function response parts")

    @staticmethod
    def answer(body, calls, text):
        def chunk(parts, reason=None):
            candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
            candidate |= {"finishReason": reason} if reason else {}
            usage = {"promptTokenCount": 100, "cachedContentTokenCount": 30, "candidatesTokenCount": 5,
                     "thoughtsTokenCount": 4, "totalTokenCount": 109}
            return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-3.8-flash"}

        yield chunk([{"text": "I wonder – 好.", "thought": True}])
        for piece in re.findall(r".{1,3}", text):
            yield chunk([{"text": piece}])
        parts = [{"functionCall": {"id": id, "name": name, "args": arguments}} for id, name, arguments in calls]
        if parts:
            parts[0]["thoughtSignature"] = digest(body["contents"], calls[0][0])
            yield chunk(parts)
        yield chunk([{"text": "", "thoughtSignature": digest(text)}], "STOP")

    @staticmethod
    def steps_done(body):
        turn = itertools.takewhile(
            lambda content: content["role"] == "model" or any("functionResponse" in part for part in content["parts"]),
            reversed(body["contents"]),
        )
        return sum(content["role"] == "model" for content in turn)

    @staticmethod
    def error(message):
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}


class Chat:
    path = re.compile(r"^/v1/chat/completions$")

    @staticmethod
    def check(body, headers, path):
        check(headers.get("authorization") == "Bearer key", "no key")
        CHAT.validate_python(body)
        waiting = []
        for message in body["messages"]:
            if message["role"] == "tool":
                check(message["tool_call_id"] in waiting, "messages with role 'tool' must follow 'tool_calls'")
                waiting.remove(message["tool_call_id"])
                continue
            check(not waiting, "an assistant message with 'tool_calls' must be followed by tool messages")
            waiting = [call["id"] for call in message.get("tool_calls") or []]
        check(not waiting, "an assistant message with 'tool_calls' must be followed by tool messages")

    @staticmethod
    def answer(body, calls, text):
        about = {"id": "chunk", "object": "chat.completion.chunk", "created": 1, "model": "m"}

        def chunk(delta, reason=None):
            return {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        yield chunk({"role": "assistant", "content": ""})
        for piece in re.findall(r".{1,3}", text):
            yield chunk({"content": piece})
        for index, (id, name, arguments) in enumerate(calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": index, "id": f"call_{id}", "type": "function", "function": function}
            yield chunk({"tool_calls": [call]})
        yield chunk({}, "tool_calls" if calls else "stop")
        usage = {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109}
        yield {**about, "choices": [], "usage": usage}

    @staticmethod
    def steps_done(body):
        turn = itertools.takewhile(
            lambda message: message["role"] != "user" or "Files of the tool results" in str(message["content"]),
            reversed(body["messages"]),
        )
        return sum(message["role"] == "assistant" for message in turn)

    @staticmethod
    def error(message):
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


APIS = {"chat": Chat, "responses": Responses, "anthropic": Anthropic, "gemini": Gemini}


class Service:
    """All four APIs. Remembers refused requests."""

    def __init__(self):
        self.requests, self.refused, self.hangs_at = [], [], None
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                headers = {name.lower(): value for name, value in self.headers.items()}
                api = next((api for api in APIS.values() if api.path.match(self.path)), None)
                if api is None:
                    return self.send(404, [json.dumps({"error": {"message": f"unknown path {self.path}"}}).encode()])
                service.requests.append((api, body))
                try:
                    api.check(body, headers, self.path)
                except (Refused, KeyError, IndexError, pydantic.ValidationError) as error:
                    service.refused.append(f"{api.__name__}: {type(error).__name__} {error}"[:4000])
                    return self.send(400, [json.dumps(api.error(str(error)[:400])).encode()])
                done = api.steps_done(body)
                if service.hangs_at is not None and done == service.hangs_at:
                    service.hangs_at = None
                    return time.sleep(LIMIT)
                calls = Plan.step(done, f"{len(service.requests)}x")
                text = "Done – 好." if not calls else ("Reading." if done == 0 else "")
                self.send(200, self.stream(api.answer(body, calls, text)))

            def stream(self, events):
                for event in events:
                    name = f"event: {event['type']}\n" if "type" in event else ""
                    data = f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
                    # Cut in the middle, also of characters.
                    yield from (data[: len(data) // 2], data[len(data) // 2 :])

            def send(self, status, pieces):
                self.send_response(status)
                self.send_header("content-type", "text/event-stream" if status == 200 else "application/json")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


CONFIG = """
[model]
provider = "openai"
base_url = "{host}/v1"
name = "m"
context_window = {window}
[context]
keep_recent_messages = 2
[model_profiles.chat]
name = "m"
[model_profiles.responses]
provider = "openai-responses"
base_url = "{host}/v1"
name = "gpt-6-sol"
effort = "high"
[model_profiles.anthropic]
provider = "anthropic"
base_url = "{host}/v1"
name = "claude-opus-5-5"
effort = "max"
[model_profiles.gemini]
provider = "gemini"
base_url = "{host}/v1"
name = "gemini-3.8-flash"
effort = "minimal"
"""


class World:
    """A home, a project and a service."""

    def __init__(self, folder, window=200_000):
        self.service = Service()
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir(parents=True)
        self.project.mkdir()
        (self.project / "a.txt").write_text("alpha\n" * 20)
        (self.project / "b.txt").write_text("beta\n" * 20)
        (self.project / "picture.png").write_bytes(PNG)
        (self.home / "config.toml").write_text(CONFIG.format(host=self.service.host, window=window))
        keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
        self.environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.environment |= {name: "key" for name in keys} | {"SOONG_AGENT_HOME": str(self.home)}

    def start(self, *words):
        return subprocess.Popen([SOONG, *words], env=self.environment, cwd=self.project, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words):
        """Runs a prompt that ends well, without a refused request."""
        process = self.start("run", "--json", *words)
        out, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0 and not self.service.refused, "\n".join([errors, *self.service.refused])
        result = json.loads(out.splitlines()[-1])["result"]
        assert result.get("output") == "Done – 好.", result
        kinds = [json.loads(line).get("event") for line in out.splitlines()[:-1]]
        assert "provider_data_rejected" not in kinds, kinds
        return result

    def kill_during(self, step, *words):
        """Kills a run while it waits for the answer after this many steps."""
        self.service.hangs_at = step
        process = self.start("run", "--json", *words)
        end = time.monotonic() + LIMIT
        while self.service.hangs_at is not None and time.monotonic() < end:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def conversation(folder, name):
    """One conversation on one API: an image, parallel calls, `kill -9`, a rewind, a summary."""
    world = World(folder, window=20_000)
    first = world.run("--model", name, "--attach", "picture.png", "Compare them")
    world.kill_during(1, "--model", name, "--continue", "Again")
    world.run("--model", name, "--continue", "And again")
    world.run("--model", name, "--session", first["session_id"], "--after", "2", "Otherwise")
    (world.project / "b.txt").write_text("beta gamma delta\n" * 2000)
    for _ in range(3):
        world.run("--model", name, "--continue", "More")


def switch(folder, first, second):
    """A conversation that changes its API, with a killed call before the change."""
    world = World(folder)
    world.run("--model", first, "--attach", "picture.png", "Compare them")
    world.kill_during(1, "--model", first, "--continue", "Again")
    world.run("--model", second, "--continue", "And now?")
    world.run("--model", first, "--continue", "Back")


def doctor(folder, provider, name):
    """`doctor --call` makes its calls with each API."""
    world = World(folder)
    model = f'[model]\nprovider = "{provider}"\nbase_url = "{world.service.host}/v1"\nname = "{name}"\n'
    (world.home / "config.toml").write_text(model)
    # On a busy machine, pieces of an answer can arrive together, so that it seems not to be streamed.
    for _ in range(3):
        process = world.start("doctor", "--call", "--json")
        out, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0 and not world.service.refused, "\n".join([out, errors, *world.service.refused])
        status = {check["name"]: check["status"] for check in json.loads(out)["checks"]}
        assert all(status[f"call{part}"] == "ok" for part in ("", " tools", " usage")), out
        if status["call streaming"] == "ok":
            return
    raise AssertionError(out)


def main():
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        failed = 0
        checks = [(f"{name}", conversation, (name,)) for name in APIS]
        models = {"openai": "m", "openai-responses": "gpt-6-sol", "anthropic": "claude-opus-5-5",
                  "gemini": "gemini-3.8-flash"}
        checks += [(f"doctor {provider}", doctor, (provider, name)) for provider, name in models.items()]
        checks += [(f"{a} to {b}", switch, (a, b)) for a, b in itertools.permutations(APIS, 2)]
        for title, function, names in checks:
            try:
                function(top / title.replace(" ", "-"), *names)
                print(f"providers: {title}: ok", flush=True)
            except (AssertionError, KeyError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(f"providers: {title}: FAILED\n{str(error)[:3000]}", flush=True)
        sys.exit(failed > 0)


main()
