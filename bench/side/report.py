"""Numbers to tables: medians, ratios, and one page of Markdown with a JSON twin."""

import dataclasses
import json
import os
import platform
import statistics


@dataclasses.dataclass
class Table:
    """One measurement. A row that could not be measured has a single cell that says why."""

    name: str
    title: str
    columns: list
    rows: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    data: dict = dataclasses.field(default_factory=dict)
    absent: list = dataclasses.field(default_factory=list)

    def missing(self, label, why):
        self.absent.append([label, f"not available: {why}"])


def percentile(values, share):
    """The smallest value that at least `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100) - 1))]


def median(values):
    return statistics.median(values)


def ms(seconds):
    return "–" if seconds is None else f"{seconds * 1000:.2f} ms"


def kb(value):
    return "–" if value is None else f"{round(value)} kB"


def rate(value):
    return "–" if value is None else f"{value:,.0f}/s".replace(",", " ")


def ratio(value, base):
    return "–" if not base or value is None else f"{value / base:.2f}×"


def machine():
    """What the numbers depend on, without naming the machine."""
    model = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version(),
            "load_at_start": round(os.getloadavg()[0], 2)}


def _lines(table):
    width = len(table.columns)
    yield "| " + " | ".join(table.columns) + " |"
    yield "| " + " | ".join(["---"] + ["---:"] * (width - 1)) + " |"
    for row in table.rows + table.absent:
        cells = [str(cell) for cell in row] + [""] * (width - len(row))
        yield "| " + " | ".join(cells) + " |"


def page(tables, facts):
    """The whole result as Markdown."""
    out = ["# Results", "", "How to read it: [README](README.md).", "",
           "Machine: " + ", ".join(f"{key} {value}" for key, value in facts.items()), ""]
    for table in tables:
        out += [f"## {table.name}", "", table.title, "", *_lines(table), ""]
        out += [f"- {note}" for note in table.notes] + ([""] if table.notes else [])
    return "\n".join(out)


def plain(table):
    """One table for a terminal: columns padded, no Markdown."""
    rows = [[str(cell) for cell in row] for row in [table.columns, *table.rows, *table.absent]]
    whole = [row for row in rows if len(row) == len(table.columns)]
    widths = [max(len(row[i]) for row in whole) for i in range(len(table.columns))]
    widths[0] = max(len(row[0]) for row in rows)
    text = [f"\n{table.name}: {table.title}"]
    for row in rows:
        padded = [row[0].ljust(widths[0])]
        padded += [cell.rjust(widths[i]) for i, cell in enumerate(row) if i] if len(row) == len(widths) else row[1:]
        text.append("  " + "  ".join(padded))
    return "\n".join(text + [f"  note: {note}" for note in table.notes])


def save(folder, name, tables, facts):
    (folder / f"{name}.md").write_text(page(tables, facts))
    (folder / f"{name}.json").write_text(json.dumps(
        {"machine": facts, "measurements": [dataclasses.asdict(table) for table in tables]}, indent=1, ensure_ascii=False) + "\n")
