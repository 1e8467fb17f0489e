"""What a user does on the pages, in words."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from conftest import URL

SHOTS = os.environ.get("STRATA_SHOTS", "")
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
