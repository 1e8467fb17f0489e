"""Chat and completions through the `openai` package."""

import json
import threading
import time

import openai
import pytest
from pydantic import BaseModel

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "options": {"type": "object"}},
            "required": ["city"],
        },
    },
}
OPTIONS = {"days": [1, 2], "unit": "<C>"}


def ask(client, text, **more):
    return client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}], **more)


def joined(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_text_stream_and_not(gpt):
    whole = ask(gpt, "Hello")
    assert whole.choices[0].message.content == "Hello there, friend."
    assert whole.choices[0].finish_reason == "stop"
    assert whole.id and whole.created and whole.model == "scripted"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert joined(ask(gpt, "Hello", stream=True)) == "Hello there, friend."


def test_emoji_and_cjk(gpt):
    text = "🙂你好 👩‍👩‍👧!"
    assert ask(gpt, "emoji").choices[0].message.content == text
    assert joined(ask(gpt, "emoji", stream=True)) == text


def test_stop_and_null(gpt):
    whole = ask(gpt, "count", stop=["four"])
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two three ", "stop")
    assert ask(gpt, "count", stop=None).choices[0].message.content.endswith("ten")


def test_limit(gpt):
    for name in ["max_tokens", "max_completion_tokens"]:
        whole = ask(gpt, "count", **{name: 2})
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two ", "length")


@pytest.mark.parametrize("text, cities", [("The weather?", ["Paris"]), ("The weather here and there?", ["Paris", "Rome"])])
def test_calls_and_the_way_back(gpt, text, cities):
    whole = ask(gpt, text, tools=[WEATHER])
    assert whole.choices[0].finish_reason == "tool_calls"
    calls = whole.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [{"city": c, "options": OPTIONS} for c in cities]
    with gpt.chat.completions.stream(
        model="any", messages=[{"role": "user", "content": text}], tools=[WEATHER]
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert [json.loads(c.function.arguments) for c in message.tool_calls] == [
        {"city": c, "options": OPTIONS} for c in cities
    ]
    # The server's own message goes back as it came.
    messages = [{"role": "user", "content": text}, message.model_dump(exclude_unset=True)]
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "18"}]})
    after = gpt.chat.completions.create(model="any", messages=messages, tools=[WEATHER])
    assert after.choices[0].message.content == "It is 18 degrees."


def test_thinking(gpt):
    low = ask(gpt, "Hello", reasoning_effort="low")
    assert low.choices[0].message.reasoning_content == "Let me see."
    assert low.choices[0].message.content == "Hello there, friend."
    assert low.usage.completion_tokens_details.reasoning_tokens == 3
    assert not hasattr(ask(gpt, "Hello", reasoning_effort="none").choices[0].message, "reasoning_content")


class Person(BaseModel):
    name: str
    age: int


def test_json_schema_with_thinking(gpt):
    parsed = gpt.chat.completions.parse(
        model="any",
        messages=[{"role": "user", "content": "Who?"}],
        response_format=Person,
        reasoning_effort="low",
    )
    assert parsed.choices[0].message.parsed == Person(name="Jon", age=6)


def test_usage_in_streams(gpt):
    chunks = list(ask(gpt, "Hello", stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert all(chunk.choices for chunk in ask(gpt, "Hello", stream=True))


def test_repeat_is_cached(gpt):
    first, second = (ask(gpt, "Is this cached?").usage for _ in range(2))
    assert first.prompt_tokens_details.cached_tokens == 0
    assert second.prompt_tokens_details.cached_tokens == second.prompt_tokens - 1


def test_errors(gpt, url):
    with pytest.raises(openai.BadRequestError) as e:
        ask(gpt, "x" * 10000)
    assert e.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as e:
        ask(gpt, "Hello", n=2)
    assert e.value.param == "n"
    with pytest.raises(openai.RateLimitError):
        ask(gpt, "busy")
    with pytest.raises(openai.InternalServerError) as e:
        ask(gpt, "loading")
    assert e.value.status_code == 503 and e.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.APIError, match="the engine died"):
        list(ask(gpt, "die", stream=True))
    with pytest.raises(openai.InternalServerError):
        # No try again: the default of two retries would be seen in the time it takes.
        start = time.time()
        ask(gpt.with_options(max_retries=2), "die")
    assert time.time() - start < 0.4
    with pytest.raises(openai.AuthenticationError):
        ask(openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0), "Hello")
    with pytest.raises(openai.NotFoundError):
        gpt.models.retrieve("gone")
    with pytest.raises(openai.LengthFinishReasonError):
        gpt.chat.completions.parse(model="any", messages=[{"role": "user", "content": "count"}], max_tokens=2)


def test_while_it_loads(gpt):
    for more in [{}, {"stream": True}]:
        with pytest.raises(openai.InternalServerError) as e:
            ask(gpt, "loading", **more)
        assert (e.value.status_code, e.value.code, e.value.type) == (503, "not_ready", "server_error")
    # The client tries again by itself, when it is told to.
    patient = gpt.with_options(max_retries=2)
    assert ask(patient, "soon, chat").choices[0].message.content == "Hello there, friend."
    assert joined(ask(patient, "soon, stream", stream=True)) == "Hello there, friend."


def test_an_engine_that_is_gone(gpt):
    for word in ["die", "vanish"]:
        text = ""
        with pytest.raises(openai.APIError, match="engine"):
            for chunk in ask(gpt, word, stream=True):
                text += chunk.choices[0].delta.content or ""
        assert text == "I am "


def test_disconnect_and_two_at_once(gpt):
    stream = ask(gpt, "slow", stream=True)
    next(iter(stream))
    stream.close()
    answers = {}
    threads = [
        threading.Thread(target=lambda t=t: answers.update({t: joined(ask(gpt, t, stream=True))}))
        for t in ["count", "emoji"]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {"count": "one two three four five six seven eight nine ten", "emoji": "🙂你好 👩‍👩‍👧!"}


def test_models(gpt):
    assert [model.id for model in gpt.models.list()] == ["scripted"]
    assert gpt.models.retrieve("scripted").context_length == 4096


def test_completions(gpt):
    whole = gpt.completions.create(model="any", prompt="count", max_tokens=3)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == ("one two three ", "length")
    stream = gpt.completions.create(model="any", prompt="count", max_tokens=3, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "one two three "
