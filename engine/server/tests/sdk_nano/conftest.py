"""Starts the real program with the built-in model, which the tests talk to through the official clients.

STRATA_BIN names the program; without it the one in the target folder is taken (`cargo build -p strata`).
"""

import os
import re
import signal
import subprocess
from pathlib import Path

import anthropic
import openai
import pytest

ROOT = Path(__file__).resolve().parents[4]
KEY = "sk-nano"


def program() -> str:
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/strata"
    return os.environ.get("STRATA_BIN", str(default))


class Server:
    """`strata serve` on a port of its own."""

    def __init__(self, *args, key=KEY):
        env = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        if key:
            env["STRATA_API_KEY"] = key
        self.process = subprocess.Popen(
            [program(), "serve", "--port", "0", *args],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env,
        )
        greeting = self.process.stdout.readline()
        self.url = re.search(r"http://\S+", greeting).group()

    def end(self) -> int:
        """Tells it to end, as a service manager does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture(scope="session")
def url():
    server = Server()
    yield server.url
    assert server.end() == 0


@pytest.fixture
def gpt(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)


@pytest.fixture
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key=KEY)
