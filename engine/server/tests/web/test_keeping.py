"""What the browser keeps: the list of conversations, files of them, settings."""

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from helpers import again, answered, grows, needs_double, send, shot

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
    tops = {key: page.locator(f"#set-{key}").bounding_box()["y"] for key in ("minP", "seed", "maxTokens")}
    assert len(set(tops.values())) == 1, f"the fields of a row do not stand beside one another: {tops}"
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
