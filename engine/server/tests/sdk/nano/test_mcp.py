"""The built-in model through the official client of the Model Context Protocol, over a pipe and over HTTP."""

import urllib.error
import urllib.request

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

PARIS = "The capital of France is Paris."
QUESTION = "What is the capital of France?"
TOOLS = ["status", "list_models", "load_model", "start_serving", "stop_serving", "run_prompt", "run_experiment"]
# The newest version of the protocol, and those before it, which begin by shaking hands.
MODES = ["auto", "legacy"]


@pytest.fixture
def over_a_pipe(program):
    return lambda *args: StdioServerParameters(command=program("STRATA_BIN", "strata"), args=["mcp", *args])


def over_http(url, key):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return streamable_http_client(f"{url}/mcp", http_client=httpx2.AsyncClient(headers=headers, timeout=60))


@pytest.fixture(params=["pipe", "http"])
def place(request, url, key, over_a_pipe):
    return over_a_pipe() if request.param == "pipe" else over_http(url, key)


def client(place, mode="auto"):
    return Client(place, mode=mode, read_timeout_seconds=120)


def run(work):
    """Runs a test that waits for what it asked."""
    anyio.run(work)


def text(result):
    return result.content[0].text


@pytest.mark.parametrize("mode", MODES)
def test_tools_are_found_and_the_model_answers(place, mode):
    async def work():
        async with client(place, mode) as c:
            assert c.server_info.name == "strata"
            assert (c.protocol_version >= "2026-07-28") == (mode == "auto")
            tools = (await c.list_tools()).tools
            assert [tool.name for tool in tools] == TOOLS
            for tool in tools:
                assert tool.description and tool.input_schema["type"] == "object"
                assert tool.annotations.read_only_hint == (tool.name in ("status", "list_models", "run_prompt"))
            told = []

            async def progress(done, total, message):
                told.append((done, total, message))

            # The client checks what comes against the schema of the tool's results.
            answer = await c.call_tool("run_prompt", {"prompt": QUESTION, "max_tokens": 50}, progress_callback=progress)
            assert not answer.is_error and text(answer) == PARIS
            assert answer.structured_content["finish"] == "stop"
            assert answer.structured_content["timings"]["predicted_ms"] > 0
            assert told and [t[0] for t in told] == sorted(t[0] for t in told)
            status = (await c.call_tool("status", {})).structured_content
            assert (status["state"], status["model"]) == ("ready", "nano")

    run(work)


def test_errors_are_for_the_model_to_read(place):
    async def work():
        async with client(place) as c:
            for tool, arguments, want in [
                ("run_prompt", {}, "prompt"),
                ("run_prompt", {"prompt": QUESTION, "temperature": "hot"}, "temperature is wrong"),
                ("load_model", {"model": "/nonexistent.gguf"}, "/nonexistent.gguf"),
                ("list_models", {"folder": "/nonexistent"}, "/nonexistent"),
            ]:
                result = await c.call_tool(tool, arguments)
                assert result.is_error and want in text(result), text(result)
            with pytest.raises(MCPError):
                await c.call_tool("dance", {})

    run(work)


def test_a_cancelled_call_ends(place):
    async def work():
        async with client(place) as c:
            await c.call_tool("run_prompt", {"prompt": "Hello"})
            before = (await c.call_tool("status", {})).structured_content["counters"]["cancelled"]
            long = {"prompt": "Tell me a story.", "temperature": 1.5, "max_tokens": 8000}
            cancelled = before
            for _ in range(20):
                async with anyio.create_task_group() as group:
                    begun = anyio.Event()

                    async def progress(*_):
                        begun.set()

                    async def ask():
                        await c.call_tool("run_prompt", long, progress_callback=progress)
                        begun.set()

                    group.start_soon(ask)
                    await begun.wait()
                    group.cancel_scope.cancel()
                for _ in range(100):
                    status = (await c.call_tool("status", {})).structured_content
                    if status["queue"]["running"] == 0:
                        break
                    await anyio.sleep(0.05)
                assert status["queue"]["running"] == 0
                cancelled = status["counters"]["cancelled"]
                if cancelled > before:
                    return
            raise AssertionError("every answer was there before it was cancelled")

    run(work)


def test_serving_begins_and_ends(over_a_pipe):
    async def work():
        async with client(over_a_pipe()) as c:
            serving = (await c.call_tool("start_serving", {"port": 0})).structured_content
            url = serving["url"]
            assert not serving["already"]
            async with client(over_http(url, key=None)) as other:
                assert text(await other.call_tool("run_prompt", {"prompt": QUESTION})) == PARIS
                again = await other.call_tool("start_serving", {})
                assert again.structured_content["already"]
            # It is the model of this program that answered.
            status = (await c.call_tool("status", {})).structured_content
            assert (status["serving"], status["counters"]["requests"]) == (url, 1)
            assert (await c.call_tool("stop_serving", {})).structured_content["ended"]
            with pytest.raises(urllib.error.URLError):
                urllib.request.urlopen(f"{url}/health")

    run(work)


def test_models_are_listed_and_replaced(over_a_pipe):
    async def work():
        async with client(over_a_pipe()) as c:
            listed = (await c.call_tool("list_models", {})).structured_content
            assert listed["models"][0]["model"] == "nano" and listed["models"][0]["built_in"]
            loaded = (await c.call_tool("load_model", {"model": "nano"})).structured_content
            assert (loaded["model"], loaded["before"]) == ("nano", None)
            again = (await c.call_tool("load_model", {"model": "nano"})).structured_content
            assert again["before"] == "nano"
            assert text(await c.call_tool("run_prompt", {"prompt": QUESTION})) == PARIS

    run(work)


def test_a_server_that_a_client_stops_ends_well(start, key):
    process, url = start()

    async def work():
        async with client(over_http(url, key)) as c:
            # Otherwise the client looks up the schema of a result when it has that, and nobody is there to ask.
            await c.list_tools()
            refused = await c.call_tool("run_experiment", {"name": "001"})
            assert refused.is_error and "--mcp all" in text(refused)
            stopped = await c.call_tool("stop_serving", {})
            assert not stopped.is_error and stopped.structured_content["url"] == url

    run(work)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_no_key_no_tools(url):
    async def work():
        async with client(over_http(url, key="wrong")) as c:
            await c.list_tools()

    # The client groups what went wrong in its tasks.
    with pytest.raises((MCPError, httpx2.HTTPError, BaseExceptionGroup)):
        run(work)
