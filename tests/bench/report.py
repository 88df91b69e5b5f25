#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Makes of what guest.py measured a table, JSON and plots; or holds it against the baseline.

    report.py DIRECTORY            table.txt, results.json and *.svg in it
    report.py --check BASELINE DIRECTORY     whether any figure is worse than in BASELINE
    report.py --update BASELINE DIRECTORY    makes BASELINE of what was measured
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import plot  # noqa: E402

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 64 * KIB
NAMES = {"rust": "nvidia-peermem-rs", "c": "NVIDIA's module"}
COUNTED = ("calls_register", "calls_deregister", "entries", "bytes", "own")
TOLERANCE = 1.03


def median(values):
    return statistics.median(values)


def spread(values):
    """Half the distance between the quartiles, as part of the median."""
    if len(values) < 2 or not median(values):
        return 0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / median(values)


def size_name(size):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def count(value):
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.2f}"


class Figures:
    """Medians of figures of registrations."""

    def __init__(self, found):
        self._found = found

    def get(self, variant, layout, size, name):
        return median(self._found[variant][layout][str(size)][name])

    def spread(self, variant, layout, size, name):
        return spread(self._found[variant][layout][str(size)][name])

    def sizes(self, layout="contiguous", least=0):
        return sorted(int(s) for s in self._found["rust"][layout] if int(s) >= least)

    def slope(self, variant, layout, low=MIB, high=GIB):
        """Own instructions for each further page."""
        grown = self.get(variant, layout, high, "own") - self.get(variant, layout, low, "own")
        return grown / ((high - low) / PAGE)


class Table:
    def __init__(self):
        self.rows = []

    def row(self, what, ours, theirs, target=None, better=None, unit=""):
        """better: ours against theirs if not just ours / theirs. No target: for information."""
        ratio = ours / theirs if better is None else better
        self.rows.append({"what": what, "ours": ours, "theirs": theirs, "ratio": ratio,
                          "target": target, "unit": unit})

    def text(self, left, right):
        width = max(len(row["what"]) for row in self.rows)
        out = [f"{'':{width}}  {left:>15} {right:>15} {'ratio':>7}  target"]
        out.append("-" * len(out[0]))
        for row in self.rows:
            out.append(f"{row['what']:{width}}  {count(row['ours']):>15} {count(row['theirs']):>15} "
                       f"{self._ratio(row['ratio']):>7}  {self._verdict(row)}".rstrip())
        return "\n".join(out) + "\n"

    @staticmethod
    def _ratio(ratio):
        return f"{ratio:.4f}" if ratio < 0.01 else f"{ratio:.3f}"

    @staticmethod
    def _verdict(row):
        if row["target"] is None:
            return ""
        sign, bound = row["target"]
        met = row["ratio"] <= bound if sign == "<=" else row["ratio"] >= bound
        return f"{sign} {bound:g}{'' if met else '  MISSED'}"


def registration_rows(table, figures):
    def both(layout, size, name):
        return (figures.get("rust", layout, size, name), figures.get("c", layout, size, name))

    table.row("driver calls, registration", *both("contiguous", MIB, "calls_register"), ("<=", 0.5))
    table.row("driver calls, deregistration", *both("contiguous", MIB, "calls_deregister"), ("<=", 1))
    for size in figures.sizes(least=16 * MIB):
        table.row(f"in the client, {size_name(size)}", *both("contiguous", size, "client"), ("<=", 0.65))
    table.row("own code, 64 KiB", *both("contiguous", PAGE, "own"), ("<=", 1))
    for layout, bound in (("contiguous", 0.25), ("fragmented", 0.8)):
        table.row(f"own code per page, {layout}", figures.slope("rust", layout),
                  figures.slope("c", layout), ("<=", bound))
    for size in (PAGE, 16 * MIB, GIB):
        table.row(f"under the global mutex, {size_name(size)}", *both("contiguous", size, "global_lock"),
                  ("<=", 0.55))
    for size in (PAGE, 16 * MIB, GIB):
        table.row(f"under a region's lock, {size_name(size)}", *both("contiguous", size, "mr_lock"))
    table.row("scatterlist bytes, 1 GiB contiguous", *both("contiguous", GIB, "bytes"), ("<=", 0.001))
    table.row("scatterlist bytes, 1 GiB fragmented", *both("fragmented", GIB, "bytes"), ("<=", 1))


def many_rows(table, found):
    for variant, name in NAMES.items():
        last, first = median(found[variant]["last"]), median(found[variant]["first"])
        table.row(f"65,536th registration / 1st, {name}", last, first,
                  ("<=", 1.05) if variant == "rust" else None)
    table.row("slab bytes per registration", found["rust"]["slab_bytes"], found["c"]["slab_bytes"])


def thread_rows(table, found):
    for number in found["rust"]:
        table.row(f"registration in one of {number} threads, ns", median(found["rust"][number]),
                  median(found["c"][number]))


def other_rows(table, found):
    for size in sorted(found["invalidation"]["rust"], key=int):
        table.row(f"free callback, {size_name(int(size))}", median(found["invalidation"]["rust"][size]),
                  median(found["invalidation"]["c"][size]))
    for what in ("load", "unload"):
        table.row(f"{what}ing the module, ns", median(found["load"]["rust"][what]),
                  median(found["load"]["c"][what]))
    for name, size in found.get("module_size", {}).items():
        table.row(f"module, {name}", size["rust"], size["c"])


def data_rows(found):
    """GPU memory against host memory."""
    table = Table()
    for tool, kinds in found["data_path"].items():
        gpu, host = median(kinds["gpu"]), median(kinds["host"])
        better = host / gpu if tool.endswith("lat") else gpu / host
        table.row(f"{tool}{', us' if tool.endswith('lat') else ', MiB/s'}", gpu, host, (">=", 0.98), better)
    return table


def staged_rows(found):
    table = Table()
    table.row("1 MiB from GPU to GPU, ns", median(found["staged"]["direct"]), median(found["staged"]["staged"]))
    return table


def cost_rows(found):
    """With and without statistics, and tracepoints."""
    table, figures = Table(), Figures(found["cost"])
    for without, what in (("no-statistics", "statistics"), ("no-tracepoints", "disabled tracepoints")):
        for size in figures.sizes():
            table.row(f"{what}, {size_name(size)}", figures.get("rust", "contiguous", size, "client"),
                      figures.get(without, "contiguous", size, "client"), ("<=", 1.01))
    return table


SECTIONS = (("register", registration_rows), ("many", many_rows), ("threads", thread_rows))


def main_table(found):
    table = Table()
    registration_rows(table, Figures(found["register"]))
    if "many" in found:
        many_rows(table, found["many"])
    if "threads" in found:
        thread_rows(table, found["threads"])
    if "invalidation" in found and "load" in found:
        other_rows(table, found)
    return table


def size_table(figures):
    out = [f"{'':22} {'ours':^44}  {'C':^44}",
           f"{'':22}" + 2 * f" {'client':>13} {'driver':>13} {'own':>9} {'spread':>6} "]
    for layout in ("contiguous", "fragmented"):
        for size in figures.sizes(layout):
            line = f"{layout:10} {size_name(size):>10} "
            for variant in NAMES:
                values = [figures.get(variant, layout, size, name) for name in ("client", "driver", "own")]
                part = figures.spread(variant, layout, size, "own")
                line += f" {values[0]:13,.0f} {values[1]:13,.0f} {values[2]:9,.0f} {part:6.1%} "
            out.append(line.rstrip())
    return "\n".join(out) + "\n"


def plots(directory, figures):
    for file, title, name, layout in (
            ("own-contiguous", "Own code, contiguous memory", "own", "contiguous"),
            ("own-fragmented", "Own code, worst fragmentation", "own", "fragmented"),
            ("client", "In the client, with the GPU driver's calls", "client", "contiguous"),
            ("global-mutex", "Under the core's global mutex", "global_lock", "contiguous"),
            ("scatterlist", "Scatterlist, contiguous memory", "bytes", "contiguous")):
        series = {NAMES[v]: [(size, figures.get(v, layout, size, name)) for size in figures.sizes(layout)]
                  for v in NAMES}
        unit = "bytes" if name == "bytes" else "instructions"
        (directory / f"{file}.svg").write_text(
            plot.lines(title, "registered", unit, series, size_name))


def report(directory):
    found = json.loads((directory / "full.json").read_text())
    tables = {"registrations": (main_table(found), "ours", "C")}
    if "cost" in found:
        tables["cost"] = cost_rows(found), "with", "without"
    if "data_path" in found:
        tables["data path"] = data_rows(found), "GPU", "host"
    if "staged" in found:
        tables["staged"] = staged_rows(found), "direct", "staged"
    figures = Figures(found["register"])
    text = (f"Counted by QEMU (-icount) on Linux {found['release']}: instructions, and ns of a CPU\n"
            "that takes one for each. One CPU, no caches, no waiting for memory or a bus.\n\n")
    text += "\n".join(table.text(*heads) for table, *heads in tables.values())
    text += "\nInstructions of one registration and its end, by size:\n\n" + size_table(figures)
    results = {name: table.rows for name, (table, *_) in tables.items()}
    if (directory / "wall.json").exists():
        wall = json.loads((directory / "wall.json").read_text())
        table = Table()
        figures_wall = Figures(wall["register"])
        for size in figures_wall.sizes():
            table.row(f"in the client, {size_name(size)}, ticks",
                      *(figures_wall.get(v, "contiguous", size, "client") for v in NAMES))
        thread_rows(table, wall["threads"])
        text += "\nBy the clock of this machine, two CPUs:\n\n" + table.text("ours", "C")
        results["wall"] = table.rows
    (directory / "table.txt").write_text(text)
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    plots(directory, figures)
    print(text, end="")


def counted(found):
    """The figures that must not get worse, by name."""
    figures = Figures(found["register"])
    values = {f"{layout}, {size_name(size)}, {name}": figures.get("rust", layout, size, name)
              for layout in ("contiguous", "fragmented") for size in figures.sizes(layout)
              for name in COUNTED}
    for layout in ("contiguous", "fragmented"):
        values[f"{layout}, own per page"] = figures.slope("rust", layout, MIB, 256 * MIB)
    return values


def update(directory, baseline_file):
    found = json.loads((directory / "short.json").read_text())
    baseline = {"release": found["release"], "figures": counted(found)}
    baseline_file.write_text(json.dumps(baseline, indent=1) + "\n")


def check(directory, baseline_file):
    found = json.loads((directory / "short.json").read_text())
    values = counted(found)
    baseline = json.loads(baseline_file.read_text())
    good = set(values) == set(baseline["figures"])
    if not good:
        print("not the figures of the baseline:", set(values) ^ set(baseline["figures"]))
    for name, was in baseline["figures"].items():
        now = values.get(name, was)
        worse, better = now > was * TOLERANCE, now * TOLERANCE < was
        if worse or better:
            print(f"{'WORSE' if worse else 'better'}: {name}: {count(now)}, was {count(was)}")
        # Another kernel, with another compiler, takes other numbers of instructions.
        comparable = found["release"] == baseline["release"] or "own" not in name
        good &= not (worse and comparable)
    print(f"{len(values)} figures on {found['release']}, baseline of {baseline['release']}")
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", type=Path, metavar="BASELINE")
    parser.add_argument("--update", type=Path, metavar="BASELINE")
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    if options.check:
        sys.exit(not check(options.directory, options.check))
    if options.update:
        update(options.directory, options.update)
    else:
        report(options.directory)


if __name__ == "__main__":
    main()
