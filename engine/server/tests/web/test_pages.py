"""The chat: sending, stopping, reloading, editing."""

import json
import re

from playwright.sync_api import expect

from conftest import WIDE
from helpers import again, answered, grows, needs_double, send, shot
from mock import Mock

# Sending and reading


def test_sends_and_shows_the_answer_with_its_cost(page):
    expect(page.locator("#welcome")).to_be_visible()
    expect(page.locator("#send")).to_be_disabled()
    send(page, "Hello there")
    answer = answered(page)
    expect(answer.locator(".body")).not_to_be_empty()
    expect(answer.locator(".cost")).to_contain_text("tokens/s")
    expect(answer.locator(".cost")).to_contain_text("prompt token")
    expect(page.locator("#title")).to_have_text("Hello there")
    expect(page.locator("#context")).to_contain_text("of")
    expect(page.locator("#conversations a[aria-current]")).to_contain_text("Hello there")
    send(page, "And again")
    answered(page, 2)
    expect(page.locator(".message")).to_have_count(4)


@needs_double
def test_streams_markdown_without_parsing_markup(page, watched):
    send(page, "Some markdown please")
    answer = answered(page)
    expect(answer.locator("h3")).to_have_text("Two ways to sum")
    expect(answer.locator("strong").first).to_have_text("a fold")
    link = answer.locator(".body a")
    expect(link).to_have_attribute("href", "https://doc.rust-lang.org/book/")
    expect(link).to_have_attribute("rel", "noopener noreferrer")
    expect(answer.locator("td").nth(2)).to_have_text("a | b")
    expect(answer.locator("th").nth(1)).to_have_class("align-right")
    expect(answer.locator("ol > li")).to_have_count(2)
    expect(answer.locator("li.task input")).to_have_count(2)
    expect(answer.locator(".hl-keyword").first).to_have_text("fn")
    expect(answer.locator(".math")).to_have_text("a_1 * b_1")
    expect(answer.locator("blockquote")).to_contain_text("<script>alert(1)</script>")
    assert answer.locator("script, img, .body [onerror]").count() == 0
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answer.get_by_role("button", name="Copy code").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("// Adds what it is given.\nfn sum")
    answer.get_by_role("button", name="Copy answer").click()
    assert page.evaluate("navigator.clipboard.readText()").startswith("## Two ways to sum")
    shot(page, "markdown")


@needs_double
def test_folds_thinking(page):
    send(page, "Please think first")
    answer = answered(page)
    thinking = answer.locator("details.thinking")
    expect(thinking.locator("summary")).to_contain_text(re.compile(r"Thought for [\d.]+ s · 8 tokens"))
    expect(thinking.locator(".thoughts")).not_to_be_visible()
    thinking.locator("summary").click()
    expect(thinking.locator(".thoughts")).to_contain_text("Let me think about this")


@needs_double
def test_shows_tool_calls_and_sends_results(page, server):
    page.click("#open-settings")
    page.click("#set-tools-details summary")
    page.fill("#set-tools", "[1]")
    page.click("#settings button[type=submit]")
    expect(page.locator("#set-tools-problem")).to_contain_text("Each tool looks like")
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
    page.fill("#set-tools", json.dumps([tool]))
    page.click("#settings button[type=submit]")
    send(page, "Use the tool")
    answer = answered(page)
    expect(answer.locator(".card header")).to_contain_text("get_weather")
    expect(answer.locator(".card pre")).to_contain_text('"city": "Paris"')
    answer.get_by_label("Result of get_weather").fill("18 degrees")
    answer.get_by_role("button", name="Send result").click()
    expect(answered(page, 2).locator(".body")).to_contain_text("The tool said: 18 degrees")
    expect(page.locator(".message.tool")).to_contain_text("18 degrees")
    assert server.state.bodies[-1]["tools"] == [tool]
    roles = [message["role"] for message in server.state.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]
    call = server.state.bodies[-1]["messages"][1]["tool_calls"][0]
    assert call == {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris", "days": [1, 2]}'}}
    assert server.state.bodies[-1]["messages"][2]["tool_call_id"] == "call_1"


@needs_double
def test_tells_of_the_queue_and_of_the_prompt(page, server):
    server.state.running = 2
    send(page, "Have patience")
    phase = page.locator(".answer .phase")
    expect(phase).to_have_text("In the queue: 2 requests waiting")
    expect(phase).to_have_text(re.compile(r"Reading the prompt: \d+ of \d+ tokens"))
    expect(page.get_by_role("progressbar", name="Prompt read")).to_be_visible()
    answered(page)
    expect(phase).to_be_hidden()


def test_adds_text_files_to_the_message(page, tmp_path):
    (tmp_path / "notes.md").write_text("Some `code` and\n```\na fence\n```\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    page.fill("#composer-input", "Read this")
    page.set_input_files("#files", [tmp_path / "notes.md", tmp_path / "picture.png"])
    expect(page.locator("#composer-input")).to_have_value("Read this\n\nnotes.md:\n````md\nSome `code` and\n```\na fence\n```\n````\n")
    expect(page.locator("#toasts")).to_contain_text("picture.png is not a text file.")


# Stopping, reloading, errors


@needs_double  # A small model has answered before it can be stopped.
def test_stops_by_button_and_by_escape(page, server):
    send(page, "Tell me a long, slow story, please.")
    grows(page)
    shot(page, "streaming")
    page.click("#stop")
    answer = answered(page)
    expect(answer.locator(".note")).to_have_text("Stopped.")
    length = len(answer.locator(".body").inner_text())
    assert length > 20
    expect(page.locator("#send")).to_be_visible()
    send(page, "Tell me another long, slow story.")
    expect(page.locator(".answer .body").nth(1)).to_have_text(re.compile(".{20}", re.DOTALL), timeout=120_000)
    page.keyboard.press("Escape")
    expect(answered(page, 2).locator(".note")).to_have_text("Stopped.")
    assert len(page.locator(".answer .body").first.inner_text()) == length
    if server:
        page.wait_for_timeout(300)
        assert server.state.cancelled == 2


@needs_double  # A small model has answered before it can be stopped.
def test_reload_keeps_everything_and_marks_what_broke_off(page):
    send(page, "Hello")
    first = answered(page).locator(".body").inner_text()
    send(page, "A long, slow story")
    expect(page.locator(".answer .body").nth(1)).to_have_text(re.compile(".{60}", re.DOTALL), timeout=120_000)
    page.fill("#composer-input", "A thought for later")
    before = page.locator(".answer .body").nth(1).inner_text()
    again(page)
    expect(page.locator(".message")).to_have_count(4)
    assert page.locator(".answer .body").first.inner_text() == first
    broken = page.locator(".answer").nth(1)
    expect(broken.locator(".note")).to_contain_text("Broken off")
    assert broken.locator(".body").inner_text().startswith(before[:60])
    assert len(broken.locator(".body").inner_text()) >= len(before), "the last words before the reload are lost"
    expect(page.locator("#composer-input")).to_have_value("A thought for later")
    expect(page.locator("#title")).to_have_text("Hello")
    broken.get_by_role("button", name="Answer again").click()
    grows(page)
    page.click("#stop")
    expect(page.locator(".answer").nth(1).locator(".versions")).to_contain_text("2/2")


@needs_double
def test_shows_errors_and_tries_again(page, server, watched):
    watched.expected += ["503", "400"]
    server.state.fail_next = (503, "The model is still being loaded.", "overloaded_error", (("Retry-After", "3"),))
    send(page, "Hello")
    note = answered(page).locator(".note")
    expect(note).to_contain_text("The model is still being loaded.")
    expect(note).to_contain_text("wait 3.0 s")
    expect(note).to_have_attribute("role", "alert")
    shot(page, "error")
    note.get_by_role("button", name="Try again").click()
    expect(page.locator(".answer .cost")).to_be_visible()
    expect(page.locator(".answer")).to_have_count(1)
    expect(page.locator(".versions")).to_have_count(0)
    send(page, "short")
    expect(answered(page, 2).locator(".note")).to_contain_text("most tokens")
    server.state.fail_next = (400, "messages: 5,000 tokens do not fit the context of 4,096.", "invalid_request_error")
    send(page, "Too much")
    expect(answered(page, 3).locator(".note")).to_contain_text("do not fit")


@needs_double
def test_says_when_the_server_is_gone_and_comes_back(page, server, watched):
    watched.expected += ["ERR_CONNECTION", "Failed to load", "ERR_INCOMPLETE", "ERR_EMPTY"]
    port = server.server_address[1]
    server.stop()
    expect(page.locator("#banner")).to_contain_text("does not answer")
    send(page, "Hello")
    expect(answered(page).locator(".note")).to_contain_text("cannot be reached")
    page.goto(page.url.split("#")[0] + "#/monitor")
    expect(page.locator('[data-panel="state"]')).to_contain_text("Gone")
    shot(page, "gone")
    again = Mock(port).start()
    try:
        expect(page.locator("#banner")).to_be_hidden(timeout=20_000)
        expect(page.locator('[data-panel="state"]')).to_contain_text("Ready")
    finally:
        again.stop()


@needs_double
def test_asks_for_the_key_and_keeps_it_as_wished(browser):
    server = Mock(key="secret").start()
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    page.goto(server.url)
    expect(page.locator("#key")).to_be_visible()
    page.fill("#key-input", "wrong")
    page.press("#key-input", "Enter")
    expect(page.locator("#key")).to_be_visible()
    page.fill("#key-input", "secret")
    page.press("#key-input", "Enter")
    expect(page.locator("#model")).to_have_text("nano-mock")
    assert page.evaluate("[sessionStorage.getItem('strata.key'), localStorage.getItem('strata.key')]") == ["secret", None]
    send(page, "Hello")
    expect(answered(page).locator(".body")).to_contain_text("Answer 1")
    page.click("#open-settings")
    page.check("#set-key-keep")
    page.click("#settings button[type=submit]")
    assert page.evaluate("[sessionStorage.getItem('strata.key'), localStorage.getItem('strata.key')]") == [None, "secret"]
    page.evaluate("localStorage.setItem('strata.key', 'changed')")
    send(page, "Once more")
    page.fill("#key-input", "secret")
    page.press("#key-input", "Enter")
    expect(answered(page, 2).locator(".body")).to_contain_text("Answer 2")
    context.close()
    server.stop()


# Editing and versions


def test_edits_branch_and_versions_switch(page):
    send(page, "The first question")
    answered(page)
    send(page, "The second question")
    answered(page, 2)
    page.locator(".user").first.hover()
    page.locator(".user").first.get_by_role("button", name="Edit message").click()
    field = page.get_by_label("Edit message").and_(page.locator("textarea"))
    expect(field).to_be_focused()
    field.fill("The changed question")
    field.press("Enter")
    answered(page)
    expect(page.locator(".message")).to_have_count(2)
    expect(page.locator(".bubble")).to_have_text("The changed question")
    expect(page.locator(".user .versions")).to_contain_text("2/2")
    page.get_by_role("button", name="Version before").click()
    expect(page.locator(".message")).to_have_count(4)
    expect(page.locator(".bubble").first).to_have_text("The first question")
    again(page)
    expect(page.locator(".message")).to_have_count(4)
    page.get_by_role("button", name="Next version").click()
    expect(page.locator(".bubble")).to_have_text("The changed question")
    # A cancelled edit changes nothing.
    page.locator(".user").first.hover()
    page.locator(".user").first.get_by_role("button", name="Edit message").click()
    page.keyboard.press("Escape")
    expect(page.locator(".user .versions")).to_contain_text("2/2")


def test_answers_again_as_another_version(page):
    send(page, "Hello")
    answered(page).get_by_role("button", name="Answer again").click()
    answered(page)
    expect(page.locator(".answer .versions")).to_contain_text("2/2")
    page.get_by_role("button", name="Version before").click()
    expect(page.locator(".answer .versions")).to_contain_text("1/2")
    expect(page.locator(".message")).to_have_count(2)
