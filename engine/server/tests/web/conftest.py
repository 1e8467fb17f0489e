"""Drives both pages in headless Chromium.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/pytest .

The browser is the `chromium` of the system, else playwright's own (`playwright install chromium`).
`STRATA_URL` names a running server to test instead of the double in mock.py (tests that need the double are skipped);
`STRATA_SHOTS` names a folder for screenshots. This file has what the tests share: the browser, the server, and a page
that is watched for errors.
"""

import os
import re
import shutil
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect, sync_playwright

from mock import Mock

URL = os.environ.get("STRATA_URL", "")
WIDE = {"width": 1280, "height": 800}
# Machines that test have few cores and much to do; nothing here asserts a time.
PATIENCE = 60_000
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        yield browser
        browser.close()


@pytest.fixture
def server():
    if URL:
        yield None
        return
    mock = Mock().start()
    yield mock
    mock.stop()


class Watched:
    """A page whose errors and requests are collected."""

    def __init__(self, context, url):
        self.url = url
        self.context = context
        self.errors = []
        self.foreign = []
        self.expected = []
        self.page = self.open()

    def open(self, path="/"):
        page = self.context.new_page()
        page.on("console", self.on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self.on_request)
        page.add_init_script(
            "window.violations = []; document.addEventListener('securitypolicyviolation', e => window.violations.push(e.violatedDirective + ' ' + e.blockedURI))"
        )
        page.goto(self.url + path)
        expect(page.locator("#model")).not_to_be_empty()
        return page

    def on_console(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def on_request(self, request):
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.url:
            self.foreign.append(request.url)

    def check(self):
        for page in self.context.pages:
            assert page.evaluate("window.violations") == [], "the Content-Security-Policy was violated"
        errors = [error for error in self.errors if not any(re.search(pattern, error) for pattern in self.expected)]
        assert errors == [], "the console shows errors"
        assert self.foreign == [], "requests left the origin"


@pytest.fixture
def watched(browser, server):
    context = browser.new_context(viewport=WIDE, color_scheme="light", accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    watched = Watched(context, URL.rstrip("/") or server.url)
    yield watched
    watched.check()
    context.close()


@pytest.fixture
def page(watched):
    return watched.page
