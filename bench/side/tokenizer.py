"""Counts tokens as GPT models do (o200k), with tables that come with the package: nothing is fetched."""

import json
import subprocess

from . import install

SCRIPT = """
import { createRequire } from "node:module";
const require = createRequire(process.argv[1] + "/");
const { countTokens } = require("gpt-tokenizer/cjs/encoding/o200k_base");
let text = "";
for await (const piece of process.stdin.setEncoding("utf8")) text += piece;
const plain = { disallowedSpecial: new Set() };
console.log(JSON.stringify(JSON.parse(text).map((one) => countTokens(one, plain))));
"""


def count(texts):
    """The number of tokens of each text."""
    place = install.package("gpt-tokenizer")
    done = subprocess.run(["node", "--input-type=module", "--eval", SCRIPT, str(place)], input=json.dumps(texts), text=True,
                          capture_output=True, check=False)
    if done.returncode:
        raise install.Missing("the tokenizer does not run: " + done.stderr.strip().splitlines()[-1][:200])
    return json.loads(done.stdout)
