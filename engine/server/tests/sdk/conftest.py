"""Starts servers and clients for the tests: the scripted server here, the real program in `nano/`.

STRATA_SCRIPTED and STRATA_BIN name the programs; without them those in the target folder are taken
(`cargo build -p strata -p strata-server --bins --examples`).
"""

import os
import subprocess
from pathlib import Path

import anthropic
import openai
import pytest

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parents[4] / "target"))


@pytest.fixture(scope="session")
def program():
    """Finds a program by its variable, or where it is built."""
    return lambda variable, built: os.environ.get(variable, str(TARGET / "debug" / built))


@pytest.fixture(scope="session")
def key():
    return "sk-test"


@pytest.fixture(scope="session")
def retries():
    """How often clients try again: the scripted server refuses on purpose."""
    return 0


@pytest.fixture(scope="session")
def url(key, program):
    command = [program("STRATA_SCRIPTED", "examples/scripted"), key]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def gpt(url, key, retries):
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=retries)


@pytest.fixture
def claude(url, key, retries):
    return anthropic.Anthropic(base_url=url, api_key=key, max_retries=retries)
