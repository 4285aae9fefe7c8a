#!/usr/bin/env node
"use strict";
// Runs the abide binary of this machine's architecture. Without arguments `abide-mcp` is the MCP server.
const path = require("node:path");
const { spawn } = require("node:child_process");

const binary = path.join(__dirname, process.arch, "abide");
const name = path.basename(process.argv[1], ".js");
const given = process.argv.slice(2);
const args = given.length === 0 && name !== "abide" ? ["mcp"] : given;

if (process.execve) {
  // Node 22.15 and later: this process becomes abide, so that no Node process stays beside it.
  try {
    process.execve(binary, [binary, ...args], process.env);
  } catch (error) {
    fail(error);
  }
}

const child = spawn(binary, args, { stdio: "inherit" });
child.on("error", fail);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

function fail(error) {
  if (error.code === "ENOENT") {
    console.error(`abide-mcp has no binary for ${process.platform} on ${process.arch}; it runs on Linux, x64 and arm64.`);
  } else {
    console.error(`abide-mcp cannot start ${binary}: ${error.message}`);
  }
  process.exit(1);
}
