"""Starts the scripted server, which the tests talk to through the official clients.

STRATA_SCRIPTED names the program (`cargo build -p strata-server --example scripted`); without it the one in the target
folder is taken.
"""

import os
import subprocess
from pathlib import Path

import anthropic
import openai
import pytest

ROOT = Path(__file__).resolve().parents[4]
KEY = "sk-test"


def program() -> str:
    default = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug/examples/scripted"
    return os.environ.get("STRATA_SCRIPTED", str(default))


@pytest.fixture(scope="session")
def url():
    process = subprocess.Popen([program(), KEY], stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def gpt(url):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)


@pytest.fixture
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)
