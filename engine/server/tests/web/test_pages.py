"""Drives both pages in headless Chromium.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/pytest test_pages.py

The browser is the `chromium` of the system, else playwright's own (`playwright install chromium`).
`STRATA_URL` names a running server to test instead of the double in mock.py (tests that need the double are skipped);
`STRATA_SHOTS` names a folder for screenshots.
"""

import json
import os
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import URL, WIDE, Watched
from mock import Mock
from playwright.sync_api import expect

SHOTS = os.environ.get("STRATA_SHOTS", "")
PHONE = {"width": 390, "height": 844}
needs_double = pytest.mark.skipif(bool(URL), reason="needs the double of mock.py")


def shot(page, name):
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def send(page, text):
    page.fill("#composer-input", text)
    page.press("#composer-input", "Enter")


def again(page):
    """Reloads the page and waits until it works."""
    page.reload()
    expect(page.locator("#model")).not_to_be_empty()


def answered(page, number=1):
    """Waits until the number-th answer on the page is done, and returns it."""
    answer = page.locator(".answer").nth(number - 1)
    expect(answer).to_have_attribute("aria-busy", "false", timeout=120_000)
    return answer


def grows(page):
    """Waits until the last answer has some text and is still being written."""
    expect(page.locator(".answer .body").last).to_have_text(re.compile(".{20}", re.DOTALL), timeout=120_000)
    expect(page.locator("#stop")).to_be_visible()


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


@needs_double
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


@needs_double
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


# The list


def test_renames_searches_deletes_and_takes_back(page):
    for text in ("Apples and pears", "Rivers of Europe"):
        page.click("#new")
        send(page, text)
        answered(page)
    items = page.locator("#conversations a")
    expect(items).to_have_count(2)
    page.fill("#search", "apples")
    expect(items).to_have_count(1)
    page.fill("#search", "nothing like it")
    expect(page.locator("#no-conversations")).to_have_text("Nothing found.")
    page.press("#search", "Escape")
    expect(items).to_have_count(2)
    items.first.hover()
    page.get_by_role("button", name="More for Rivers of Europe").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.fill("#ask-input", "Rivers")
    page.press("#ask-input", "Enter")
    expect(page.locator("#title")).to_have_text("Rivers")
    page.get_by_role("button", name="More for this conversation").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(items).to_have_count(1)
    expect(page.locator("#welcome")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(items).to_have_count(2)
    expect(page.locator(".bubble")).to_have_text("Rivers of Europe")
    page.get_by_role("button", name="More for this conversation").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(items).to_have_count(1)
    again(page)
    expect(items).to_have_count(1)


def test_exports_and_imports(page, tmp_path):
    send(page, "Keep this")
    answer = answered(page).locator(".body").inner_text()
    page.get_by_role("button", name="More for this conversation").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Export as Markdown").click()
    assert download.value.suggested_filename == "Keep-this.md"
    text = Path(download.value.path()).read_text()
    assert text.startswith("# Keep this\n\n## You\n\nKeep this\n") and answer.split()[0] in text
    page.get_by_role("button", name="More for this conversation").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="Export as JSON").click()
    file = tmp_path / "kept.json"
    download.value.save_as(file)
    page.click("#open-settings")
    page.set_input_files("#import-file", file)
    expect(page.locator("#conversations a")).to_have_count(2)
    page.locator("#settings [data-close]").first.click()
    damaged = json.loads(file.read_text())
    next(iter(damaged["conversations"][0]["nodes"].values()))["children"] = ["missing"]
    file.write_text(json.dumps(damaged))
    page.click("#open-settings")
    page.set_input_files("#import-file", file)
    expect(page.locator("#toasts")).to_contain_text("Conversation 1 of the file is damaged.")
    page.click("#delete-all")
    page.click("#confirm-ok")
    expect(page.locator("#conversations a")).to_have_count(0)


def test_two_tabs_see_the_same(page, watched):
    send(page, "Shared words")
    answered(page)
    other = watched.open("/" + page.url[page.url.index("#") :])
    expect(other.locator(".message")).to_have_count(2)
    send(page, "More words")
    answered(page, 2)
    expect(other.locator(".message")).to_have_count(4)
    expect(other.locator(".answer .cost")).to_have_count(2)


@needs_double
def test_an_answer_is_seen_in_other_tabs_and_ends_with_its_own(page, watched):
    send(page, "A long, slow story")
    grows(page)
    other = watched.open("/" + page.url[page.url.index("#") :])
    expect(other.locator(".answer .phase")).to_have_text("Being written in another tab")
    length = len(other.locator(".answer .body").text_content())
    expect(other.locator(".answer .body")).to_have_text(re.compile(".{%d}" % (length + 40), re.DOTALL))
    page.close(run_before_unload=True)
    expect(other.locator(".answer .note")).to_contain_text("Broken off")


# Settings


@needs_double
def test_settings_reach_the_server_and_last(page, server):
    page.keyboard.press("Control+,")
    page.fill("#set-system", "You are brief.")
    page.fill("#set-temperature", "3")
    page.click("#settings button[type=submit]")
    expect(page.locator("#set-temperature-hint")).to_have_text("A number from 0 to 2")
    expect(page.locator("#set-temperature")).to_be_focused()
    for key, value in (("temperature", "0.4"), ("topP", "0.9"), ("seed", "7"), ("maxTokens", "64")):
        page.fill(f"#set-{key}", value)
    page.select_option("#set-thinking", "low")
    shot(page, "settings")
    page.click("#settings button[type=submit]")
    again(page)
    page.keyboard.press("Control+,")
    expect(page.locator("#set-temperature")).to_have_value("0.4")
    page.fill("#set-system", "You are brief.")
    page.click("#settings button[type=submit]")
    send(page, "Hello")
    answered(page)
    body = server.state.bodies[-1]
    assert body["messages"] == [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Hello"}]
    assert {key: body[key] for key in ("temperature", "top_p", "seed", "max_tokens", "reasoning_effort", "stream")} == {
        "temperature": 0.4, "top_p": 0.9, "seed": 7, "max_tokens": 64, "reasoning_effort": "low", "stream": True,
    }
    assert body["chat_template_kwargs"] == {"enable_thinking": True}
    page.select_option("#thinking", "off")
    send(page, "Hello again")
    answered(page, 2)
    assert server.state.bodies[-1]["chat_template_kwargs"] == {"enable_thinking": False}
    assert "top_k" not in server.state.bodies[-1]


def test_colours_follow_the_system_and_the_switch(page):
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(background)
    assert light != dark
    page.click("#theme")
    assert page.evaluate(background) == light
    page.click("#theme")
    page.emulate_media(color_scheme="light")
    assert page.evaluate(background) == dark
    again(page)
    assert page.evaluate(background) == dark
    page.click("#theme")
    assert page.evaluate(background) == light


# Keyboard and screen readers


def test_works_by_keyboard_alone(page):
    page.keyboard.press("Alt+n")
    page.keyboard.type("First line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    answered(page)
    expect(page.locator(".bubble")).to_have_text("First line\nsecond line")
    expect(page.locator("#announcer")).not_to_be_empty()
    page.keyboard.press("ArrowUp")
    expect(page.locator(".edit textarea")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Changed by keyboard")
    page.keyboard.press("Enter")
    answered(page)
    expect(page.locator(".user .versions")).to_contain_text("2/2")
    page.keyboard.press("Alt+r")
    expect(page.locator(".answer .versions")).to_contain_text("2/2")
    answered(page)
    page.keyboard.press("Control+k")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("F2")
    page.keyboard.type("By keyboard")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("By keyboard")
    page.keyboard.press("Alt+m")
    expect(page.locator("#monitor")).to_be_visible()
    page.keyboard.press("Alt+m")
    page.keyboard.press("Control+/")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#shortcuts")).to_be_hidden()
    page.locator("#conversations a").first.focus()
    page.keyboard.press("Delete")
    expect(page.locator("#conversations a")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, scheme):
    """Lesser findings depend on what the model writes, such as headings that leave out a level."""
    page.emulate_media(color_scheme=scheme)
    send(page, "Please think, then write markdown")
    answered(page)
    found = []

    def look(where):
        violations = Axe().run(page).response["violations"]
        found.extend((where, v["id"], node["html"]) for v in violations if v["impact"] in ("serious", "critical") for node in v["nodes"])

    look("chat")
    for button in ("#open-settings", "#open-shortcuts"):
        page.click(button)
        look(button)
        page.keyboard.press("Escape")
    page.get_by_role("button", name="More for this conversation").click()
    look("menu")
    page.keyboard.press("Escape")
    page.click("#to-monitor")
    expect(page.locator('[data-panel="state"]')).to_contain_text("Ready")
    look("monitor")
    assert found == []


def test_tab_reaches_everything_in_reading_order(page):
    send(page, "Hello")
    answered(page)
    page.locator("#skip").focus()
    seen = ["skip"]
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label') || document.activeElement.tagName"))
    order = [seen.index(name) for name in ("skip", "to-chat", "new", "search", "open-settings", "Copy answer", "composer-input", "thinking")]
    assert order == sorted(order), seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(page, scheme):
    """WCAG AA: 4.5 to 1 for the colours that text is made of, on what lies behind it."""
    page.emulate_media(color_scheme=scheme)
    pairs = [
        (text, behind)
        for behind in ("page", "side", "panel", "raised")
        for text in ("text", "quiet", "accent", "danger")
    ] + [("text", "soft"), ("text", "hover"), ("on-accent", "accent"), ("danger", "danger-soft"), ("warn", "warn-soft"), ("quiet", "hover")]
    ratios = page.evaluate(
        """pairs => pairs.map(([a, b]) => {
            const channel = c => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
            const luminance = name => {
                const e = document.body.appendChild(document.createElement('i'));
                e.style.color = `var(--${name})`;
                const [r, g, b] = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number);
                e.remove();
                return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
            };
            const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
            return [a, b, (x + 0.05) / (y + 0.05)];
        })""",
        pairs,
    )
    assert [pair for pair in ratios if pair[2] < 4.5] == []


# The monitor


def test_monitor_shows_what_the_server_reports(page, server):
    send(page, "Hello")
    answered(page)
    page.click("#to-monitor")
    expect(page.locator('[data-panel="state"]')).to_contain_text("Ready")
    expect(page.locator('[data-panel="queue"]')).to_contain_text("running")
    expect(page.locator('[data-panel="counters"]')).to_contain_text("Tokens written")
    expect(page.locator('[data-panel="memory"]')).to_contain_text("Weights")
    up = page.locator('[data-panel="state"] dd').nth(2)
    before = up.inner_text()
    expect(up).not_to_have_text(before)
    if server:
        expect(page.locator('[data-panel="writing"]')).to_contain_text(re.compile(r"Last answer: [\d.,]+ tokens/s"))
        assert page.locator('[data-panel="rounds"] svg g').count() == 120
        assert page.locator(".heat .cell").count() == 48
        expect(page.locator(".heat .cell").last).to_contain_text("–")
        expect(page.locator('[data-panel="degradations"]')).to_contain_text("No GPU was found")
        expect(page.locator('[data-panel="drafts"]')).to_contain_text("74 %")


@needs_double
def test_an_answer_goes_on_while_the_monitor_is_open(page):
    send(page, "A long, slow story")
    grows(page)
    length = len(page.locator(".answer .body").text_content())
    page.click("#to-monitor")
    page.wait_for_timeout(700)
    page.click("#to-chat")
    assert len(page.locator(".answer .body").text_content()) > length
    page.click("#stop")
    answered(page)


@needs_double
def test_pages_may_lie_in_a_folder(watched):
    page = watched.open("/web/")
    send(page, "Hello")
    expect(answered(page).locator(".body")).to_contain_text("Answer 1")
    page.click("#to-monitor")
    expect(page.locator('[data-panel="state"]')).to_contain_text("Ready")


@needs_double
def test_asks_for_the_status_where_there_are_no_events(page, server, watched):
    watched.expected.append("404")
    server.without_events = True
    page.goto(page.url.split("#")[0] + "#/monitor")
    again(page)
    up = page.locator('[data-panel="state"] dd').nth(2)
    before = up.inner_text()
    expect(up).not_to_have_text(before)
    expect(page.locator("#banner")).to_be_hidden()


@needs_double
def test_says_that_the_model_loads(page, server):
    server.state.load_share = 0.43
    expect(page.locator("#banner")).to_have_text("The model is being loaded: 43 %.")


# How it looks


@needs_double
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "phone"])
def test_looks(browser, server, scheme, size):
    context = browser.new_context(viewport=WIDE if size == "wide" else PHONE, color_scheme=scheme, has_touch=size == "phone", is_mobile=size == "phone")
    watched = Watched(context, server.url)
    page = watched.page
    shot(page, f"{size}-{scheme}-welcome")
    send(page, "Please think about sums")
    answered(page)
    page.locator("details.thinking summary").click()
    send(page, "Now in markdown")
    answered(page, 2)
    page.locator("#scroller").evaluate("e => e.scrollTo(0, 0)")
    page.wait_for_timeout(150)
    shot(page, f"{size}-{scheme}-chat")
    page.locator("#scroller").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    page.wait_for_timeout(150)
    shot(page, f"{size}-{scheme}-chat-end")
    if size == "phone":
        page.click("#sidebar-open")
        page.wait_for_timeout(300)
        shot(page, f"{size}-{scheme}-list")
        page.click("#to-monitor")
        expect(page.locator("#main")).not_to_have_attribute("inert", "")
    else:
        page.click("#to-monitor")
    page.wait_for_timeout(1500)
    shot(page, f"{size}-{scheme}-monitor")
    page.locator("#monitor").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    page.wait_for_timeout(150)
    shot(page, f"{size}-{scheme}-monitor-end")
    # Nothing may be wider than the screen, and only parts of the page scroll, never the whole.
    assert page.evaluate("[document.documentElement.scrollWidth - innerWidth, document.documentElement.scrollHeight - innerHeight]") == [0, 0]
    page.goto(server.url + "/#/chat")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.querySelector('#scroller').scrollWidth <= document.querySelector('#scroller').clientWidth")
    watched.check()
    context.close()
