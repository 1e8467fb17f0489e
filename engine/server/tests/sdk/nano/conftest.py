"""The real program with the built-in model instead of the scripted server."""

import os
import re
import signal
import subprocess

import pytest


@pytest.fixture(scope="session")
def retries():
    """As clients have it, since the model is loaded while they ask."""
    return 2


@pytest.fixture(scope="session")
def start(key, program):
    """Starts a server: its process and its address."""

    def start():
        env = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        process = subprocess.Popen(
            [program("STRATA_BIN", "strata"), "serve", "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**env, "STRATA_API_KEY": key},
        )
        return process, re.search(r"http://\S+", process.stdout.readline()).group()

    return start


@pytest.fixture(scope="session")
def url(start):
    process, address = start()
    yield address
    # As a service manager ends it.
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
