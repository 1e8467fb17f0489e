"""Keyboard and screen readers."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from helpers import answered, send


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
