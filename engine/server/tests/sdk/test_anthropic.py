"""Messages through the `anthropic` package."""

import json

import anthropic
import pytest

WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "options": {"type": "object"}},
        "required": ["city"],
    },
}
OPTIONS = {"days": [1, 2], "unit": "<C>"}


def body(text, **more):
    return {"model": "any", "max_tokens": 1000, "messages": [{"role": "user", "content": text}], **more}


def text(message):
    return "".join(block.text for block in message.content if block.type == "text")


def final(client, request):
    with client.messages.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.mark.parametrize("ask", [lambda c, r: c.messages.create(**r), final])
def test_answers(claude, ask):
    message = ask(claude, body("Hello"))
    assert (text(message), message.stop_reason) == ("Hello there, friend.", "end_turn")
    assert (message.type, message.role, message.model) == ("message", "assistant", "scripted")
    assert text(ask(claude, body("emoji"))) == "🙂你好 👩‍👩‍👧!"
    stopped = ask(claude, body("count", stop_sequences=["four"]))
    assert (text(stopped), stopped.stop_reason, stopped.stop_sequence) == ("one two three ", "stop_sequence", "four")
    cut = ask(claude, body("count", max_tokens=2))
    assert (text(cut), cut.stop_reason) == ("one two ", "max_tokens")
    thought = ask(claude, body("Hello", thinking={"type": "enabled", "budget_tokens": 1024}))
    assert thought.content[0].thinking == "Let me see." and thought.content[0].signature
    assert text(thought) == "Hello there, friend."
    assert [b.type for b in ask(claude, body("Hello", thinking={"type": "disabled"})).content] == ["text"]


def test_json_schema_with_thinking(claude):
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    format = {"type": "json_schema", "schema": schema}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    message = claude.messages.create(**body("Who?", output_config={"format": format}, thinking=thinking))
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert json.loads(text(message)) == {"name": "Jon", "age": 6}


@pytest.mark.parametrize("ask", [lambda c, r: c.messages.create(**r), final])
def test_calls_and_the_way_back(claude, ask):
    request = body("The weather here and there?", tools=[WEATHER])
    message = ask(claude, request)
    assert message.stop_reason == "tool_use"
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": c, "options": OPTIONS} for c in ["Paris", "Rome"]]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "18"} for call in calls]
    request["messages"] += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
    assert text(ask(claude, request)) == "It is 18 degrees."


def test_a_call_that_is_cut(claude):
    requests = [body("The weather?", tools=[WEATHER], max_tokens=limit) for limit in range(1, 7)]
    cut = [final(claude, request) for request in requests]
    inputs = [[block.input for block in message.content if block.type == "tool_use"] for message in cut]
    at_once = [claude.messages.create(**request) for request in requests]
    assert inputs == [[block.input for block in message.content if block.type == "tool_use"] for message in at_once]
    assert all(input in ({}, {"city": "Paris"}, {"city": "Paris", "options": OPTIONS}) for each in inputs for input in each)
    assert {message.stop_reason for message in cut} == {"max_tokens"}
    # Before its name is known a call is nothing; afterwards it is there, however little of it was written.
    assert all("<tool_call>" not in text(message) for message in cut)
    called = [any(block.type == "tool_use" for block in message.content) for message in cut]
    assert called == sorted(called) and not called[0] and called[-1]


def test_counting_is_what_is_reported(claude):
    request = body("How many tokens?", system="You count.", tools=[WEATHER])
    usage = claude.messages.create(**request).usage
    del request["max_tokens"]
    counted = claude.messages.count_tokens(**request).input_tokens
    assert counted == usage.input_tokens + usage.cache_read_input_tokens
    again = claude.messages.create(**request, max_tokens=10).usage
    assert (again.input_tokens, again.cache_read_input_tokens) == (1, counted - 1)
    streamed = final(claude, {**request, "max_tokens": 10}).usage
    assert streamed.cache_read_input_tokens == counted - 1


def test_errors(claude, url):
    for request, error in [
        (body("x" * 10000), anthropic.BadRequestError),
        (body("busy"), anthropic.RateLimitError),
        (body("loading"), anthropic.InternalServerError),
        (body("die"), anthropic.InternalServerError),
        ({**body("a"), "messages": []}, anthropic.BadRequestError),
    ]:
        with pytest.raises(error) as e:
            claude.messages.create(**request)
        assert e.value.body["type"] == "error" and e.value.body["request_id"].startswith("req_")
        assert e.value.request_id == e.value.body["request_id"]
    for word, says in [("die", "the engine died"), ("vanish", "the engine ended")]:
        with pytest.raises(anthropic.APIStatusError, match=says):
            final(claude, body(word))
    with pytest.raises(anthropic.AuthenticationError):
        anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create(**body("Hello"))


@pytest.mark.parametrize("ask", [lambda c, r: c.messages.create(**r), final])
def test_while_it_loads(claude, ask):
    with pytest.raises(anthropic.InternalServerError) as e:
        ask(claude, body("loading"))
    assert (e.value.status_code, e.value.body["error"]["type"]) == (503, "api_error")
    patient = claude.with_options(max_retries=2)
    assert text(ask(patient, body(f"soon, {ask.__name__}"))) == "Hello there, friend."


def test_models(claude):
    assert [model.id for model in claude.models.list()] == ["scripted"]
    assert claude.models.retrieve("scripted").display_name == "scripted"
