"""The built-in model through the official clients, against the real program."""

import datetime
import json
import re
import time
import urllib.error
import urllib.request

import anthropic
import httpx2
import openai
import pytest
from pydantic import BaseModel

PARIS = "The capital of France is Paris."
QUESTION = "What is the capital of France?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TIMER = {"type": "object", "properties": {"minutes": {"type": "string"}}, "required": ["minutes"]}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "set_timer", "description": "Start a timer", "parameters": TIMER}},
]
ASKED = [{"role": "user", "content": "What is the weather in Nairobi?"}]
# The client has no argument for it any more; users send it all the same.
GREEDY = {"temperature": 0}
WEATHER = '{"temperature": 23, "sky": "clear"}'


class Person(BaseModel):
    name: str
    age: int
    city: str


def status(url, key, body=None):
    """Status and body of a plain request."""
    request = urllib.request.Request(url, body, {"authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read()
    except urllib.error.HTTPError as reply:
        return reply.code, reply.read()


def ask(client, text, **more):
    return client.chat.completions.create(model="nano", messages=[{"role": "user", "content": text}], temperature=0, **more)


def test_ready_soon(url, key):
    # The clients retry while the model is loaded; this one asks for itself.
    for _ in range(100):
        if status(f"{url}/ready", key)[0] == 200:
            return
        time.sleep(0.05)
    raise AssertionError("not ready after 5 s")


def test_chat_stream_and_not(gpt):
    whole = ask(gpt, QUESTION)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (PARIS, "stop")
    assert whole.model == "nano"
    with gpt.chat.completions.stream(model="nano", messages=[{"role": "user", "content": QUESTION}], temperature=0,
                                     stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == PARIS
    assert final.usage.prompt_tokens == whole.usage.prompt_tokens


def test_a_limit_and_a_stop_text(gpt):
    short = ask(gpt, QUESTION, max_tokens=3)
    assert short.choices[0].finish_reason == "length" and PARIS.startswith(short.choices[0].message.content)
    stopped = ask(gpt, QUESTION, stop=[" is"])
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("The capital of France", "stop")


def test_the_same_seed_is_the_same_text(gpt):
    texts = [
        gpt.chat.completions.create(
            model="nano", messages=[{"role": "user", "content": "Tell me a story."}], temperature=1.2, seed=seed,
        ).choices[0].message.content
        for seed in [7, 7, 8]
    ]
    assert texts[0] == texts[1] != texts[2]


def test_logprobs(gpt):
    whole = ask(gpt, QUESTION, logprobs=True, top_logprobs=3)
    content = whole.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in content).decode() == PARIS
    for token in content:
        best = token.top_logprobs[0]
        # Greedy takes the likeliest.
        assert (token.token, token.logprob) == (best.token, best.logprob) and best.logprob <= 0


def test_a_tool_in_two_steps(gpt):
    first = gpt.chat.completions.create(model="nano", messages=ASKED, tools=TOOLS, temperature=0)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    call = message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Nairobi"})
    # The server's own message goes back as it came.
    answer = {"role": "tool", "tool_call_id": call.id, "content": WEATHER}
    second = gpt.chat.completions.create(model="nano", messages=[*ASKED, message, answer], tools=TOOLS, temperature=0)
    assert second.choices[0].message.content == "It is 23 degrees in Nairobi with clear sky."
    assert second.usage.prompt_tokens_details.cached_tokens > 0


def test_a_streamed_tool(gpt):
    with gpt.chat.completions.stream(model="nano", messages=ASKED, tools=TOOLS, temperature=0) as stream:
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Nairobi"})


def test_a_tool_that_is_required(gpt):
    # Nobody would call a tool for this.
    for choice in ["required", {"type": "function", "function": {"name": "set_timer"}}]:
        whole = gpt.chat.completions.create(
            model="nano", messages=[{"role": "user", "content": QUESTION}], tools=TOOLS, tool_choice=choice,
            temperature=0, max_tokens=200,
        )
        call = whole.choices[0].message.tool_calls[0]
        assert call.function.name in ("get_weather", "set_timer")
        assert choice == "required" or call.function.name == "set_timer"
        assert isinstance(json.loads(call.function.arguments), dict)


def test_values_of_a_required_call_are_held_to_their_schema(gpt):
    properties = {
        "city": {"$ref": "#/$defs/City"}, "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$", "maxLength": 8},
        "day": {"type": "string", "format": "date"}, "unit": {"anyOf": [{"const": "C"}, {"type": "null"}]},
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
                  "$defs": {"City": {"type": "string", "enum": ["Rome", "Oslo"]}}}
    tool = {"type": "function", "function": {"name": "book", "strict": True, "parameters": parameters}}
    for seed in range(4):
        whole = gpt.chat.completions.create(
            model="nano", messages=ASKED, tools=[tool], tool_choice="required", temperature=1.5, seed=seed, max_tokens=400,
        )
        assert whole.choices[0].finish_reason == "tool_calls"
        values = json.loads(whole.choices[0].message.tool_calls[0].function.arguments)
        assert values["city"] in ("Rome", "Oslo") and values["unit"] in ("C", None), values
        assert re.fullmatch("[A-Z]{3}-[0-9]+", values["code"]) and len(values["code"]) <= 8, values
        datetime.date.fromisoformat(values["day"])


def test_schemas_that_cannot_be_enforced(gpt):
    tool = {"type": "function", "function": {"name": "book", "strict": True, "parameters": {
        "type": "object", "properties": {"code": {"type": "string", "pattern": "(?=a)"}}}}}
    with pytest.raises(openai.BadRequestError) as bad:
        ask(gpt, QUESTION, tools=[tool], tool_choice="required")
    assert bad.value.param == "tools" and '"book"' in bad.value.message and '"code"' in bad.value.message
    tool["function"]["strict"] = False
    assert ask(gpt, QUESTION, tools=[tool], tool_choice="required", max_tokens=200).choices[0].message.tool_calls
    endless = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"$ref": "#"}}}
    with pytest.raises(openai.BadRequestError) as bad:
        ask(gpt, QUESTION, response_format=endless)
    assert bad.value.param == "response_format"


def test_structured_output(gpt):
    text = "Extract the data as JSON: Quinn is 9 years old and lives in Athens."
    parsed = gpt.chat.completions.parse(
        model="nano", messages=[{"role": "user", "content": text}], response_format=Person, temperature=0, max_tokens=200,
    )
    assert parsed.choices[0].message.parsed == Person(name="Quinn", age=9, city="Athens")
    # Also where the model would say something else.
    forced = ask(gpt, QUESTION, response_format={"type": "json_object"}, max_tokens=300)
    if forced.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(forced.choices[0].message.content), dict)


def test_responses(gpt):
    whole = gpt.responses.create(model="nano", input=QUESTION, temperature=0)
    assert (whole.output_text, whole.status) == (PARIS, "completed")
    with gpt.responses.stream(model="nano", input=QUESTION, temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed"
    assert final.output_text == PARIS and final.usage.output_tokens == whole.usage.output_tokens


def test_responses_with_a_tool(gpt):
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in TOOLS]
    first = gpt.responses.create(model="nano", input=ASKED, tools=tools, temperature=0)
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Nairobi"})
    told = {"type": "function_call_output", "call_id": call.call_id, "output": WEATHER}
    second = gpt.responses.create(model="nano", input=[*ASKED, *first.output, told], tools=tools, temperature=0)
    assert second.output_text == "It is 23 degrees in Nairobi with clear sky."


def test_messages(claude):
    asked = {"model": "nano", "extra_body": GREEDY, "messages": [{"role": "user", "content": QUESTION}]}
    whole = claude.messages.create(max_tokens=100, **asked)
    assert (whole.content[0].text, whole.stop_reason) == (PARIS, "end_turn")
    with claude.messages.stream(max_tokens=100, **asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == PARIS == final.content[0].text
    capped = claude.messages.create(max_tokens=2, **asked)
    assert capped.stop_reason == "max_tokens"
    stopped = claude.messages.create(max_tokens=100, stop_sequences=["Paris"], **asked)
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "Paris")


def test_messages_with_a_tool(claude):
    tools = [{"name": "get_weather", "description": "Weather of a city", "input_schema": PARAMETERS},
             {"name": "set_timer", "description": "Start a timer", "input_schema": TIMER}]
    first = claude.messages.create(model="nano", max_tokens=200, messages=ASKED, tools=tools, extra_body=GREEDY)
    assert first.stop_reason == "tool_use"
    use = next(block for block in first.content if block.type == "tool_use")
    assert (use.name, use.input) == ("get_weather", {"city": "Nairobi"})
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": WEATHER}]}
    turns = [*ASKED, {"role": "assistant", "content": first.content}, result]
    second = claude.messages.create(model="nano", max_tokens=200, messages=turns, tools=tools, extra_body=GREEDY)
    assert second.content[0].text == "It is 23 degrees in Nairobi with clear sky."


def test_counted_tokens_are_those_of_the_answer(claude):
    for content in [QUESTION, "你好 👩‍👩‍👧 <|im_end|> <tool_call>", "a\n" * 50]:
        messages = [{"role": "user", "content": content}]
        for more in [{}, {"system": "Be brief."}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}]:
            counted = claude.messages.count_tokens(model="nano", messages=messages, **more)
            limit = 2048 if "thinking" in more else 1
            usage = claude.messages.create(model="nano", max_tokens=limit, messages=messages, **more).usage
            cached = usage.cache_read_input_tokens or 0
            assert counted.input_tokens == usage.input_tokens + cached, (content, more)


def test_thinking(claude, gpt):
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    thought = claude.messages.create(
        model="nano", max_tokens=2048, messages=messages, thinking={"type": "enabled", "budget_tokens": 1024},
    )
    kinds = [block.type for block in thought.content]
    assert kinds[0] == "thinking" and kinds[-1] == "text", kinds
    plain = claude.messages.create(model="nano", max_tokens=200, messages=messages, thinking={"type": "disabled"})
    assert [block.type for block in plain.content] == ["text"]
    low = gpt.chat.completions.create(model="nano", messages=messages, reasoning_effort="low")
    assert low.usage.completion_tokens_details.reasoning_tokens > 0 and low.choices[0].message.content


def test_a_second_turn_reads_only_what_is_new(gpt):
    turns = [{"role": "user", "content": "Tell me a story about a fox and a hill, as long as you can."}]
    first = gpt.chat.completions.create(model="nano", messages=turns, temperature=0)
    turns += [first.choices[0].message, {"role": "user", "content": "And then?"}]
    second = gpt.chat.completions.create(model="nano", messages=turns, temperature=0)
    usage = second.usage
    known = first.usage.prompt_tokens + first.usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= known - 8


def test_errors_are_those_of_the_clients(url, key, gpt, claude):
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{url}/v1", api_key="wrong").models.list()
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=url, api_key="wrong").messages.create(
            model="nano", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as bad:
        ask(gpt, QUESTION, n=2)
    assert bad.value.param == "n"
    with pytest.raises(openai.BadRequestError) as long:
        ask(gpt, "word " * 20_000)
    assert "8192" in long.value.message
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="nano", max_tokens=1, messages=[])
    code, body = status(f"{url}/v1/chat/completions", key, b"{nonsense")
    assert code == 400 and "error" in json.loads(body)


def test_models(gpt, claude):
    assert [model.id for model in gpt.models.list()] == ["nano"]
    assert [model.id for model in claude.models.list()] == ["nano"]


def test_a_server_that_is_killed_is_no_end_of_an_answer(start, key):
    for stream in ["chat", "messages"]:
        process, url = start()
        gpt = openai.OpenAI(base_url=f"{url}/v1", api_key=key)
        claude = anthropic.Anthropic(base_url=url, api_key=key)
        story = [{"role": "user", "content": "Tell me a story about a fox and a hill, as long as you can."}]
        # The clients wait until it is loaded.
        ask(gpt, "Hello", max_tokens=1)
        with pytest.raises((openai.APIError, anthropic.APIError, httpx2.HTTPError)):
            if stream == "chat":
                events = gpt.chat.completions.create(model="nano", messages=story, temperature=1.5, stream=True)
            else:
                events = claude.messages.create(model="nano", max_tokens=2000, messages=story, stream=True)
            for number, _ in enumerate(events):
                if number == 2:
                    process.kill()
            raise AssertionError("the answer looks as if it were whole")
        process.communicate()
