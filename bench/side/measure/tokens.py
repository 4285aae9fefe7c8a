"""What a model pays for a noisy log, and what it learns from it: tokens returned, planted errors kept."""

import pathlib
import tempfile

from .. import agents, contender, install, logs, tokenizer
from ..report import Table
from ..wire import Gone


def measure(bench):
    replayed = list(logs.planted())
    total = sum(len(log.signs) for log in replayed)
    table = Table("tokens", f"{len(replayed)} noisy logs by `cat`, {total} errors planted anywhere: errors kept and tokens returned (o200k)",
                  ["tool", "errors kept", "tokens", *[f"{log.name}" for log in replayed]])
    with tempfile.TemporaryDirectory(prefix="abide-bench-logs-") as folder:
        for log in replayed:
            (pathlib.Path(folder) / f"{log.name}.log").write_text(log.text)
        add(bench, table, replayed, "cat", "`cat` itself", [(log.text, log.text) for log in replayed])
        for kind in (contender.Abide, agents.CodexAgent, contender.DesktopCommander):
            if kind.name in bench.without:
                continue
            one = kind(bench)
            try:
                add(bench, table, replayed, kind.name, one.label, returned(one, folder, replayed))
            except (install.Missing, Gone) as why:
                table.missing(one.label, why)
            finally:
                one.close()
    table.notes = ["each log's column: errors kept of those planted, and tokens",
                   "counted is what a client gives its model: `structuredContent` as JSON where a tool sends it, else the text",
                   f"Codex is the real binary (model {agents.CodexAgent.MODEL} of its catalogue, default output limit) against a stand-in model on loopback"]
    return table


def returned(one, folder, replayed):
    """For each log: the text that came back, and the form in which a model is given it."""
    connection = one.open()
    answers = []
    for log in replayed:
        command = f"cat {folder}/{log.name}.log"
        if isinstance(one, agents.CodexAgent):
            shown = one.play(one_call("exec_command", {"cmd": command, "yield_time_ms": 30_000})).shown[0]
            answers.append((shown, shown))
        else:
            answer = connection.shell(command)
            answers.append((answer.text, answer.shown))
    return answers


def one_call(tool, arguments):
    """A script of one call."""
    yield tool, arguments


def add(bench, table, replayed, name, label, answers):
    counts = tokenizer.count([shown for _, shown in answers] + [text for text, _ in answers])
    shown_counts, text_counts = counts[:len(answers)], counts[len(answers):]
    kept = [[sign for sign in log.signs if sign in text] for log, (text, _) in zip(replayed, answers)]
    table.rows.append([label, f"{sum(map(len, kept))} of {sum(len(log.signs) for log in replayed)}", sum(shown_counts),
                       *[f"{len(found)}/{len(log.signs)} {count}" for log, found, count in zip(replayed, kept, shown_counts)]])
    table.data[name] = {"tokens": sum(shown_counts), "tokens_of_text_alone": sum(text_counts), "kept": sum(map(len, kept)),
                        "logs": {log.name: {"tokens": count, "tokens_of_text_alone": plain, "lost": [s for s in log.signs if s not in found]}
                                 for log, found, count, plain in zip(replayed, kept, shown_counts, text_counts)}}
    if bench.options.keep:
        place = pathlib.Path(bench.options.keep) / name
        place.mkdir(parents=True, exist_ok=True)
        for log, (_, shown) in zip(replayed, answers):
            (place / f"{log.name}.txt").write_text(shown)
