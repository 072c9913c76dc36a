"""Multi-vector engines side by side on the same vectors: recall of the exact top ten against time.

    python -m benchmarks.embed --data wikipassages --cache vectors --passages 15000
    python -m benchmarks.engine.run --vectors vectors --passages 15000 --cache indexes --json engine.json \\
        --python fast-plaid=plaid/bin/python --python xtr-warp-rs=plaid/bin/python --python faiss=other/bin/python

Each engine runs in its own interpreter, given with --python; docs/measurements/engine.md says how to make them. An
engine without one, or one that fails, appears in the report with its error. Indexes are saved under --cache. Two
engines build with float16 products and take hours on a processor without them; with --quick-rivals this benchmark
writes their indexes (rivals/residual_maker.py), and the report says so. --plots and --page turn the report into plots
and fill a page; --from reads an earlier report instead of measuring.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.engine.corpus import Corpus
from benchmarks.engine.machine import machine
from benchmarks.engine.measure import RunConfig, run
from benchmarks.engine.variants import MODULES, variants


def main() -> None:
    arguments = parse()
    if arguments.reports:
        report = merged([json.loads(path.read_text()) for path in arguments.reports])
    else:
        report = {"machine": machine(), "runs": [measured(arguments, threads) for threads in arguments.threads]}
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    from benchmarks.engine.report import text_tables

    print(text_tables(report))
    if arguments.plots:
        from benchmarks.engine.plots import draw

        draw(report, arguments.plots)
    if arguments.page:
        from benchmarks.engine.report import fill

        fill(report, arguments.page, plots=arguments.plots)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, help="a folder of benchmarks.embed or benchmarks.engine.extend")
    parser.add_argument("--passages", type=int, default=15_000)
    parser.add_argument("--cache", type=Path, help="a folder for indexes and exact answers")
    parser.add_argument("--data", type=Path, help="a BEIR folder with the passages' texts, for plait's catalogue")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH", help=f"of {', '.join(MODULES)}")
    parser.add_argument("--only", nargs="+", help="prefixes of variant names; all variants by default")
    parser.add_argument(
        "--quick-rivals", action="store_true", help="write the indexes of fast-plaid and xtr-warp-rs here"
    )
    parser.add_argument("--targets", nargs="*", default=[], help="also force plait to these instruction sets")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--build-threads", type=int, default=2)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--slow-queries", type=int, default=100, help="queries for slow engines")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build-limit", type=float, default=1800, help="seconds")
    parser.add_argument("--search-limit", type=float, default=60, help="seconds for one setting in one round")
    parser.add_argument("--cpus", type=int, nargs="+", help="pin the engines to these processors while they search")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--from", type=Path, nargs="+", dest="reports", help="show these reports; measure nothing")
    parser.add_argument("--plots", type=Path, help="write plots to this folder; needs matplotlib")
    parser.add_argument("--page", type=Path, help="fill in this page, such as docs/measurements/engine.md")
    arguments = parser.parse_args()
    if not arguments.reports and (arguments.vectors is None or arguments.cache is None):
        parser.error("give --vectors and --cache to measure, or --from to show earlier reports")
    return arguments


def measured(arguments: argparse.Namespace, threads: int) -> dict[str, Any]:
    """One run. plait and NumPy use this interpreter unless another is given."""
    pythons = {"plait": sys.executable, "numpy": sys.executable}
    for pair in arguments.python:
        engine, _, path = pair.partition("=")
        if engine not in MODULES or not path:
            sys.exit(f"--python {pair} is not ENGINE=PATH with an engine of {', '.join(MODULES)}")
        pythons[engine] = path
    every = variants(arguments.targets, quick=arguments.quick_rivals)
    chosen = every
    if arguments.only:
        chosen = [variant for variant in every if variant.name.startswith(tuple(arguments.only))]
    if not chosen:
        sys.exit(f"--only {arguments.only} names none of: {', '.join(variant.name for variant in every)}")
    config = RunConfig(
        corpus=Corpus(arguments.vectors, arguments.passages),
        cache=arguments.cache,
        pythons=pythons,
        texts=arguments.data,
        threads=threads,
        build_threads=arguments.build_threads,
        n_queries=arguments.queries,
        n_queries_slow=arguments.slow_queries,
        n_rounds=arguments.rounds,
        build_limit=arguments.build_limit,
        search_limit=arguments.search_limit,
        cpus=arguments.cpus,
    )
    return run(config, chosen)


def merged(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Several reports of one machine as one."""
    for report in reports[1:]:
        if report["machine"] != reports[0]["machine"]:
            sys.exit("these reports are of different machines; show them one at a time")
    return {"machine": reports[0]["machine"], "runs": [run for report in reports for run in report["runs"]]}


if __name__ == "__main__":
    main()
