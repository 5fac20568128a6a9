"""`katib mcp`, by the protocol's own client, over standard input and HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from katib.places.machine import open_engine
from tests.support.browser import why_not
from tests.support.cli import KATIB, environment
from tests.support.processes import Launch
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from mcp.types import CallToolResult

pytestmark = [
    pytest.mark.skipif(find_spec("mcp") is None, reason="mcp is not installed"),
    pytest.mark.filterwarnings("default"),  # those of the client are its own
]
# The client takes a second to import: each test does, so that processes that run none of them do not.

READING = {"experiments", "experiment", "trials", "trial", "why", "compare", "figure", "watch", "algorithms"} | {
    "confirmation"
}
WRITING = {"start", "submit", "ask", "report", "tell", "stop", "pause", "confirm"}
MOST_TOKENS = 6_000


def tokens(text: str) -> int:
    """Return about how many tokens a text is, rather too many: words, up to three digits, other marks."""
    return len(re.findall(r"[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]", text))


class Assistant:
    """Calls tools, and counts what it reads."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.tokens = 0

    async def call(self, tool: str, /, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result
        return self._read(result)

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error
        return self._read(result)

    def _read(self, result: CallToolResult) -> str:
        from mcp.types import TextContent

        (content,) = result.content
        assert isinstance(content, TextContent)
        assert result.structured_content is None
        self.tokens += tokens(content.text)
        return content.text


def session(directory: Path, play: Callable[[Assistant], Awaitable[None]], *options: str) -> None:
    """Have an assistant play with `katib mcp`, which it starts."""
    import mcp

    async def main() -> None:
        command, *arguments = [*KATIB, "mcp", "--data-dir", str(directory / "data"), *options]
        program = mcp.StdioServerParameters(
            command=command, args=arguments, env=environment(HOME=str(directory)), cwd=directory
        )
        async with asyncio.timeout(120), mcp.Client(program) as client:
            await play(Assistant(client))

    asyncio.run(main())


@pytest.mark.slow
def test_an_assistant_tunes_by_ask_and_tell_and_reads_few_words(tmp_path: Path) -> None:
    async def play(assistant: Assistant) -> None:
        assert {tool.name for tool in (await assistant.client.list_tools()).tools} == READING | WRITING
        space = ["lr=1e-4..1:log", "layers=1..4", "opt=adam,sgd"]
        await assistant.call("start", parameters=space, metric="loss", direction="minimize", name="mine", trials=30)
        line = await assistant.call("ask", experiment="mine")
        while not line.startswith("no trial"):
            name, _, text = line.partition(" ")
            parameters = json.loads(text)
            loss = parameters["lr"] + parameters["layers"]
            assert await assistant.call("report", trial=name, values={"loss": loss + 1}, step=0) == "continue"
            line = (await assistant.call("tell", trial=name, values={"loss": loss})).splitlines()[-1]
        watched = await assistant.call("watch", experiment="mine")
        assert watched.startswith("mine Succeeded 30/30")
        assert "lr: double" in await assistant.call("experiment", name="mine")
        trials = await assistant.call("trials", experiment="mine", limit=3)
        *rows, tally = trials.splitlines()
        names = [row.split()[0] for row in rows]
        assert tally == "3 of 30 trials"
        assert names[0] in watched
        assert (await assistant.call("trial", name=names[0])).startswith(f"{names[0]} Succeeded")
        assert len((await assistant.call("compare", trials=names)).splitlines()) == 4
        assert "all 30 trials" in await assistant.call("why", name="mine")
        assert await assistant.call("experiments") != "0 experiments"
        await assistant.call("algorithms")
        assert assistant.tokens <= MOST_TOKENS

    session(tmp_path, play, "--write")


@pytest.mark.slow
def test_an_assistant_runs_a_command_and_mistakes_say_what_to_do(tmp_path: Path) -> None:
    async def play(assistant: Assistant) -> None:
        started = await assistant.call(
            "start",
            parameters=["x=0.0..1.0"],
            metric="loss",
            direction="minimize",
            command="cat here; echo loss={x}",
            trials=2,
        )
        assert started == "cat created"
        watched = await assistant.call("watch", experiment="cat", seconds=50)
        assert "2/2" in watched
        best = re.search(r"best: (\S+)", watched)
        assert best is not None
        assert (await assistant.call("trial", name=best[1])).splitlines()[-2] == "a file of the assistant's directory"
        assert "it has ended" in await assistant.refused("stop", experiment="cat")
        assert "its job evaluates it" in await assistant.refused("tell", trial=best[1])
        assert "write apiVersion" in await assistant.refused("submit", yaml="kind: Experiment")
        assert '"other"' in await assistant.refused("ask", experiment="other")
        if not why_not():
            result = await assistant.client.call_tool("figure", {"experiment": "cat"})
            (content,) = result.content
            assert content.type == "image"
            assert base64.b64decode(content.data).startswith(b"\x89PNG")

    (tmp_path / "here").write_text("a file of the assistant's directory\n")
    session(tmp_path, play, "--write")


@pytest.mark.slow
def test_it_only_reads_unless_writing_is_allowed_and_asks_for_the_token_over_http(
    launch: Launch, tmp_path: Path
) -> None:
    import httpx2
    import mcp
    from mcp.client.streamable_http import streamable_http_client

    with open_engine(data_dir=tmp_path / "data"):
        pass  # it has been used
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        line = [*KATIB, "mcp", "--data-dir", str(tmp_path / "data"), "--http", "0"]
        launch(line, stdout=out, cwd=tmp_path, env=environment(HOME=str(tmp_path)))
    url = eventually(lambda: printed.read_text().partition(" ")[0])
    token = (tmp_path / "data" / "token").read_text().strip()

    async def main() -> None:
        async with (
            httpx2.AsyncClient(headers={"authorization": f"Bearer {token}"}, trust_env=False) as http,
            mcp.Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert {tool.name for tool in (await client.list_tools()).tools} == READING
            assert await Assistant(client).call("experiments") == "0 experiments"
        async with httpx2.AsyncClient(trust_env=False) as http:
            assert (await http.post(url, json={})).status_code == 401
            host = {"authorization": f"Bearer {token}", "host": "evil.example"}
            assert (await http.post(url, json={}, headers=host)).status_code == 403

    asyncio.run(main())
