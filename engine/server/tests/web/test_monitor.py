"""The monitor, and how both pages look."""

import re

import pytest
from playwright.sync_api import expect

from conftest import WIDE, Watched
from helpers import again, answered, grows, needs_double, send, shot

PHONE = {"width": 390, "height": 844}


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
        expect(page.locator('[data-panel="cache"]')).to_contain_text("On paper")
        expect(page.locator('[data-panel="degradations"]')).to_contain_text("No GPU was found")
        expect(page.locator('[data-panel="drafts"]')).to_contain_text("74 %")


@needs_double  # A small model has answered before it can be stopped.
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
