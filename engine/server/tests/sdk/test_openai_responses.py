"""Responses through the `openai` package."""

import json

import openai
import pytest
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "options": {"type": "object"}},
        "required": ["city"],
    },
}


def test_text(gpt):
    response = gpt.responses.create(model="any", input="Hello", instructions="Be brief.")
    assert (response.status, response.output_text) == ("completed", "Hello there, friend.")
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_stream_with_its_final_object(gpt):
    with gpt.responses.stream(model="any", input="emoji", reasoning={"effort": "low"}) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert deltas == final.output_text == "🙂你好 👩‍👩‍👧!"
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output[0].content[0].text == "Let me see."


def test_calls_and_the_way_back(gpt):
    with gpt.responses.stream(model="any", input="The weather here and there?", tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    calls = [item for item in final.output if item.type == "function_call"]
    assert [json.loads(call.arguments)["city"] for call in calls] == ["Paris", "Rome"]
    items = [{"role": "user", "content": "The weather here and there?"}]
    items += [item.model_dump(exclude_unset=True) for item in final.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "18"} for call in calls]
    assert gpt.responses.create(model="any", input=items, tools=[WEATHER]).output_text == "It is 18 degrees."


class Person(BaseModel):
    name: str
    age: int


def test_parse_with_thinking_and_without(gpt):
    for effort, kinds in [("none", ["message"]), ("low", ["reasoning", "message"])]:
        response = gpt.responses.parse(model="any", input="Who?", text_format=Person, reasoning={"effort": effort})
        assert response.output_parsed == Person(name="Jon", age=6)
        assert [item.type for item in response.output] == kinds


def test_repeat_is_cached(gpt):
    first, second = (gpt.responses.create(model="any", input="Is this response cached?").usage for _ in range(2))
    assert first.input_tokens_details.cached_tokens == 0
    assert second.input_tokens_details.cached_tokens == second.input_tokens - 1


def test_limit_and_errors(gpt):
    response = gpt.responses.create(model="any", input="count", max_output_tokens=2)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.output_text == "one two "
    with pytest.raises(openai.BadRequestError) as e:
        gpt.responses.create(model="any", input="Hello", previous_response_id="resp_1")
    assert e.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        gpt.responses.retrieve("resp_1")
    with pytest.raises(openai.BadRequestError) as e:
        gpt.responses.create(model="any", input="x" * 10000)
    assert e.value.code == "context_length_exceeded"
    for word in ["die", "vanish"]:
        events = list(gpt.responses.create(model="any", input=word, stream=True))
        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert "engine" in events[-2].message and events[-1].response.status == "failed"


def test_while_it_loads(gpt):
    for more in [{}, {"stream": True}]:
        with pytest.raises(openai.InternalServerError) as e:
            gpt.responses.create(model="any", input="loading", **more)
        assert (e.value.status_code, e.value.code) == (503, "not_ready")
    patient = gpt.with_options(max_retries=2)
    assert patient.responses.create(model="any", input="soon, responses").output_text == "Hello there, friend."


def test_counting(gpt):
    count = gpt.responses.input_tokens.count(model="any", input="Hello")
    assert count.input_tokens == gpt.responses.create(model="any", input="Hello").usage.input_tokens
