"""The official Python client, in both generations of the protocol."""

import asyncio
import os
from pathlib import Path

import mcp
import mcp_types as types
from mcp.client.stdio import StdioServerParameters

WORK = Path(os.environ["WORK"])
SERVER = StdioServerParameters(
    command=os.environ["ABIDE"], args=["mcp"], env=dict(os.environ), cwd=WORK
)


def text(result):
    assert result.structured_content["text"] == result.content[0].text
    return result.content[0].text


def client(mode, answer=None):
    async def ask(context, params):
        action = answer(params.message)
        content = {} if action == "accept" else None
        return types.ElicitResult(action=action, content=content)

    return mcp.Client(SERVER, mode=mode, elicitation_callback=ask if answer else None)


async def scenario(mode, version):
    async with client(mode) as c:
        assert c.protocol_version == version, c.protocol_version
        tools = await c.list_tools()
        assert {"shell", "execute_command"} <= {tool.name for tool in tools.tools}

        result = await c.call_tool("shell", {"command": "echo out; exit 7"})
        assert "RETURN_CODE: 7\nSTDOUT:\nout\n" in text(result), result
        assert not result.is_error

        result = await c.call_tool("shell", {"command": ""})
        assert result.is_error
        assert text(result) == "ERROR: Shell command cannot be empty."

        # The client's time runs out: the command goes on.
        done = f"{mode}.done"
        try:
            command = f"until test -e {mode}.end; do sleep 0.05; done; echo done > {done}"
            await c.call_tool("shell", {"command": command}, read_timeout_seconds=0.5)
            raise AssertionError("it should have timed out")
        except mcp.MCPError as e:
            assert "timed out" in str(e), e
        (WORK / f"{mode}.end").touch()
        async with asyncio.timeout(180):
            while not (WORK / done).exists():
                await asyncio.sleep(0.05)

        # Nobody can be asked: the agent decides.
        result = await c.call_tool("execute_command", {"command": "sleep 30", "timeout": 0.3})
        assert result.structured_content["status"] == "running", result

    asked = []

    def patient(message):
        asked.append(message)
        if len(asked) == 2:
            (WORK / f"{mode}.go").touch()
        return "accept"

    async with client(mode, patient) as c:
        wait = f"until test -e {mode}.go; do sleep 0.05; done"
        command = f"echo run >> {mode}.count; {wait}; echo over"
        result = await c.call_tool("execute_command", {"command": command, "timeout": 0.3})
        assert text(result).startswith("over\n[exited with code 0 after "), result
        assert asked[0].startswith("Command has been idle for 300ms. Continue waiting?\n"), asked
        assert (WORK / f"{mode}.count").read_text() == "run\n"

    def impatient(message):
        # A command that is slow to begin is asked about before it has written anything.
        return "decline" if "last output: a" in message else "accept"

    async with client(mode, impatient) as c:
        command = {"command": "echo a; sleep 1000", "timeout": 2}
        result = await c.call_tool("execute_command", command)
        assert result.is_error
        assert text(result).startswith("command execution timeout: no output for 2s\na")

    async with client(mode, lambda message: "cancel") as c:
        result = await c.call_tool("execute_command", {"command": "sleep 30", "timeout": 0.3})
        assert result.structured_content["status"] == "running", result


async def main():
    await scenario("auto", "2026-07-28")
    await scenario("legacy", "2025-11-25")
    print("all is well")


asyncio.run(main())
