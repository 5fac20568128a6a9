"""The page in a real browser, on experiments of many trials, beside optuna-dashboard on the same trials.

    python -m benchmarks.ui [--only paint|table|reading|weight|size|export] [--rival PYTHON] [--keep DIRECTORY]

- `paint`: from the navigation to the useful page (head with state and best value, first rows of the table painted), and
  to the history drawn, with the server and the browser's cache warm, and the longest task of its scripts; before that
  the first visit of a fresh server.
- `table`: from the event of the input to the painted rows, at the largest size: sort, search, filter, brush.
- `reading`: from the time at which a trial prints a line to the time at which its page shows the number.
- `weight`: bytes on the wire of a first visit; of the overview, whose figures need no Plotly, and of the analysis.
- `size`: a server of 100,000 trials: its start, its memory, its first page; then 20 open pages, and a client that reads
  everything as JSON. For an ended experiment and for a running one. A page is simulated by a client that makes the
  requests of our scripts, because a browser keeps six connections to a server.
- `export`: `katib export --to html`: seconds, memory and bytes.

`--rival` is a Python with optuna-dashboard; without it ours is measured alone. `--keep` names a directory whose data
are reused. The browser is the system's Chromium; everything stays on this machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.many_trials import NAME, fill, values
from benchmarks.support import KATIB, ROOT_ENVIRONMENT, memory_mb, processor_seconds, wait_with_memory
from tests.support.browser import chromium, why_not
from tests.support.ports import free_port

if TYPE_CHECKING:
    from playwright.sync_api import BrowserType, Page

PAINT_TARGETS = {1_000: 0.5, 100_000: 1.0}
RIVAL_SIZES, FASTER, SHARE_OF_BYTES = (1_000,), 8.0, 0.15
TABLE_TARGET_MS, READING_TARGET_MS = 200.0, 500.0
WEIGHT_TARGET_KB, TASK_TARGET_MS = {"experiments": 120.0, "experiment": 500.0}, 100.0
PAGES, PAGES_TARGET_MB = 20, 40.0
START_TARGET, SIZE_TARGET_MB = 5.0, 250.0
EXPORT_TARGET_MB = {1_000: 3.0}
LIMIT_MS = 240_000.0
EXPERIMENT = f"/katib/experiments/default/{NAME}"

WEIGHED = (("experiments", "/katib/", 0), ("experiment", EXPERIMENT, 2), ("analysis", f"{EXPERIMENT}?tab=analysis", 1))
"""Pages by name, with their addresses and the number of figures in a window."""

MARKS = """
(() => {
  const marks = (window.benchMarks = {});
  window.benchTask = 0;
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.benchTask = Math.max(window.benchTask, duration);
  }).observe({ type: "longtask", buffered: true });
  const checks = %s;
  const painted = (run) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = run;
    channel.port2.postMessage(0);
  };
  const frame = () => {
    for (const [name, check] of Object.entries(checks)) {
      if (name in marks || !document.body || !check()) continue;
      marks[name] = null;
      painted(() => { marks[name] = performance.now(); });
    }
    window.benchDone = () => Object.keys(checks).every((name) => marks[name]);
    if (Object.keys(marks).length < Object.keys(checks).length) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
  for (const name of ["click", "input", "pointerup"]) {
    window.addEventListener(name, (event) => { window.benchEvent = event.timeStamp; }, true);
  }
  window.benchSwap = (selector) => new Promise((resolve) => {
    new MutationObserver((_, observer) => {
      observer.disconnect();
      requestAnimationFrame(() => painted(() => resolve(performance.now() - window.benchEvent)));
    }).observe(document.querySelector(selector), { childList: true });
  });
})();
"""
"""Times of painted elements: checked at every frame, and recorded by a message after the frame was painted."""

OURS = """{
  useful: () => document.querySelector("#head .state") && document.querySelector("#head .best .value")
    && document.querySelector("#trials tbody tr"),
  history: () => document.querySelector('[data-figure="history"] .chart canvas[data-drawn]'),
  parallel: () => document.querySelector('[data-figure="parallel"] .parallel canvas'),
}"""
THEIR_HISTORY = '() => document.querySelector(".js-plotly-plot .scatterlayer .trace")'
THEIRS = f"{{ history: {THEIR_HISTORY} }}"
_DRAWN = """(count) => [...document.querySelectorAll("[data-figure]")].slice(0, count)
  .every((figure) => !figure.querySelector(".loading"))"""


@contextmanager
def serve(directory: Path, probe: str = "healthz") -> Iterator[tuple[str, int]]:
    """Serve a data directory; yield its address and the id of the process."""
    port = free_port()
    command = [*KATIB, "serve", "--data-dir", str(directory), "--port", str(port), "--no-token"]
    with _process(command, f"http://127.0.0.1:{port}/{probe}") as process:
        yield f"http://127.0.0.1:{port}", process


@contextmanager
def _process(command: Sequence[str], probe: str) -> Iterator[int]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ROOT_ENVIRONMENT, start_new_session=True
    )
    try:
        for _ in range(2_400):
            try:
                urllib.request.urlopen(probe, timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, f"{command} has ended"
                time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def data_of(root: Path, count: int, **options: Any) -> Path:
    """Return a data directory of this many trials, created once."""
    directory = root / f"{'running' if options else 'ended'}-{count}"
    if not (directory / "filled").exists():
        fill(directory, count, **options)
        (directory / "filled").touch()
    return directory


def visit(page: Page, url: str) -> dict[str, float]:
    """Open a page; return the paint times of its parts, in seconds after the start of the navigation."""
    page.goto(url, wait_until="commit")
    page.wait_for_function("() => window.benchDone?.()", timeout=LIMIT_MS, polling=100)
    marks: dict[str, float] = page.evaluate("({ ...window.benchMarks, longest: window.benchTask })")
    return {name: at / 1000 for name, at in marks.items()}


@contextmanager
def marked_page(browser: BrowserType, checks: str) -> Iterator[Page]:
    """Yield a page that records the paint times of its parts.

    Its browser has a new profile on disk, as users have: only there a browser caches compiled scripts.
    """
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with tempfile.TemporaryDirectory() as profile:
        context = browser.launch_persistent_context(
            profile,
            executable_path=chromium(),
            args=["--disable-dev-shm-usage", *sandbox],
            viewport={"width": 1440, "height": 1400},
        )
        try:
            context.add_init_script(MARKS % checks)
            yield context.new_page()
        finally:
            context.close()


def paint(browser: BrowserType, root: Path, rival: Path | None) -> bool:
    """Measure how soon a page is useful and its figures are drawn."""
    missed = False
    for count, target in PAINT_TARGETS.items():
        with serve(data_of(root, count)) as (url, _), marked_page(browser, OURS) as page:
            first, second, *runs = [_visit_and_leave(page, url + EXPERIMENT) for _ in range(11)]
        useful, tasks = [run["useful"] for run in runs], [1000 * run["longest"] for run in runs]
        missed |= statistics.median(useful) > target or statistics.median(tasks) > TASK_TARGET_MS
        print(
            f"paint, {count:,} trials: useful {_spread(useful)} (target {target} s), history "
            f"{_spread([run['history'] for run in runs])}, parallel {_spread([run['parallel'] for run in runs])}, "
            f"longest task {_spread_ms(tasks)}; "
            f"second visit: useful {second['useful']:.2f} s, history {second['history']:.2f} s; "
            f"first, of a fresh server: useful {first['useful']:.2f} s, history {first['history']:.2f} s; {_load()}",
            flush=True,
        )
        if rival is not None and count in RIVAL_SIZES:
            theirs, text = _rival_paint(browser, root, rival, count)
            faster = theirs / statistics.median(run["history"] for run in runs)
            missed |= faster < FASTER
            print(f"  optuna-dashboard: {text}; {faster:.1f} times ours until the history is drawn", flush=True)
    return missed


def _visit_and_leave(page: Page, url: str) -> dict[str, float]:
    found = visit(page, url)
    page.goto("about:blank")
    return found


def _rival_paint(browser: BrowserType, root: Path, rival: Path, count: int) -> tuple[float, str]:
    with _rival(root, rival, count) as url:
        with urllib.request.urlopen(f"{url}/api/studies/1?after=0", timeout=200) as answer:
            size = len(answer.read())
        with marked_page(browser, THEIRS) as page:
            runs = [_visit_and_leave(page, f"{url}/dashboard/studies/1")["history"] for _ in range(11)][2:]
    return statistics.median(runs), f"{size / 1e6:.2f} MB of JSON, history {_spread(runs)}"


@contextmanager
def _rival(root: Path, rival: Path, count: int) -> Iterator[str]:
    """Serve a study of the same trials by optuna-dashboard; yield its address."""
    database, source = root / f"rival-{count}.db", root / f"rival-{count}.json"
    script = str(Path(__file__).with_name("ui_rival.py"))
    if not source.exists():
        subprocess.run([rival, script, "fill", database, _written(root, source, count)], check=True, timeout=280)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with _process([str(rival), script, "serve", str(database), str(port)], f"{url}/api/studies"):
        yield url


def _written(root: Path, path: Path, count: int) -> Path:
    path.write_text(json.dumps(values(data_of(root, count))))
    return path


def table(browser: BrowserType, root: Path, _rival: Path | None) -> bool:
    """Measure the response time of the table."""
    with serve(data_of(root, 100_000)) as (url, _):
        figures: dict[str, list[float]] = {}
        with marked_page(browser, OURS) as page:
            visit(page, url + EXPERIMENT)
            for name, (act, undo) in _table_actions(page).items():
                figures[name] = []
                for _ in range(9):
                    figures[name].append(_until_swapped(page, act))
                    _until_swapped(page, undo)
    for name, times in figures.items():
        print(f"table of 100,000 trials, {name}: {_spread_ms(times)} (target {TABLE_TARGET_MS:.0f} ms)", flush=True)
    print(_load())
    return max(map(statistics.median, figures.values())) > TABLE_TARGET_MS


def _table_actions(page: Page) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    def sort(title: str) -> Callable[[], None]:
        return page.locator("#trials thead a", has_text=title).first.click

    def search(text: str) -> Callable[[], None]:
        return lambda: page.locator("#filters [data-search]").fill(text)

    def state() -> None:
        page.evaluate("document.querySelector('#filters input[name=state][value=Failed]').click()")

    def brush(first: float, last: float) -> Callable[[], None]:
        def drag() -> None:
            area = page.locator("[data-figure=parallel] .parallel")
            area.scroll_into_view_if_needed()
            box = page.locator("[data-figure=parallel] [data-axis=units] .handle").bounding_box()
            assert box is not None
            x = box["x"] + box["width"] / 2
            page.mouse.move(x, box["y"] + first * box["height"])
            page.mouse.down()
            page.mouse.move(x, box["y"] + last * box["height"], steps=4)
            page.mouse.up()

        return drag

    return {
        "sort by a parameter": (sort("lr"), sort("loss")),
        "search": (search("adam"), search("")),
        "one state": (state, state),
        "brush": (brush(0.2, 0.6), page.locator("#trials .chips a").first.click),
    }


def _until_swapped(page: Page, act: Callable[[], Any]) -> float:
    page.evaluate("void (window.benchWaits = window.benchSwap('#trials'))")  # a promise would be awaited
    act()
    milliseconds: float = page.evaluate("window.benchWaits")
    return milliseconds


def reading(browser: BrowserType, _root: Path, _rival: Path | None) -> bool:
    """Measure the delay from a trial's print to its page."""
    count, pause = 150, 0.2
    with tempfile.TemporaryDirectory() as place:
        printed = Path(place) / "printed"
        program = (
            "import time\n"
            f"notes = open({str(printed)!r}, 'w')\n"
            "time.sleep(5)\n"
            f"for n in range(1, {count + 100}):\n"
            "    notes.write(f'{n} {time.time()}\\n'); notes.flush()\n"
            "    print(f'loss={n}', flush=True)\n"
            f"    time.sleep({pause})\n"
        )
        script = Path(place) / "program.py"
        script.write_text(program)
        directory = Path(place) / "data"
        fill(directory, 100, goes_on=True, command=f"exec {sys.executable} {script}", parallel=1)
        with serve(directory) as (url, _), marked_page(browser, "{}") as page:
            trial = _running_trial(url)
            page.goto(f"{url}/katib/trials/default/{trial}")
            page.evaluate(
                """() => {
                  window.benchSeen = [];
                  const look = () => {
                    const text = document.querySelector("[data-latest]")?.textContent ?? "";
                    const log = document.querySelector("[data-log-lines]")?.textContent.slice(-60) ?? "";
                    const lines = [...log.matchAll(/loss=(\\d+)\\n?/g)];
                    const found = [Number(text.match(/Latest: (\\d+)/)?.[1] ?? 0), Number(lines.at(-1)?.[1] ?? 0)];
                    const last = benchSeen.at(-1);
                    if (last && last[0] === found[0] && last[1] === found[1]) return;
                    const entry = [...found, 0];
                    benchSeen.push(entry);
                    requestAnimationFrame(() => {
                      const channel = new MessageChannel();
                      channel.port1.onmessage = () => { entry[2] = Date.now() / 1000; };
                      channel.port2.postMessage(0);
                    });
                  };
                  const all = { childList: true, subtree: true, characterData: true };
                  new MutationObserver(look).observe(document.body, all);
                }"""
            )
            page.wait_for_function(f"() => benchSeen.at(-1)?.[0] >= {count}", timeout=120_000, polling=500)
            seen = page.evaluate("benchSeen")
        told = dict(map(float, line.split()) for line in printed.read_text().splitlines())  # type: ignore[arg-type, misc]
    missed = False
    for place_of, name in ((0, "the latest value"), (1, "the log")):
        first = next((entry[place_of] for entry in seen if entry[place_of]), 0)
        times = sorted(
            1000 * (next(entry[2] for entry in seen if entry[place_of] >= number and entry[2]) - told[number])
            for number in range(int(first) + 5, count)
        )
        last = times[int(0.99 * len(times))]
        missed |= statistics.median(times) > READING_TARGET_MS
        print(
            f"a reading, until {name} shows it: median {statistics.median(times):.0f} ms, 99 % {last:.0f} ms, of "
            f"{len(times)} (target {READING_TARGET_MS:.0f} ms); {_load()}"
        )
    return missed


def _running_trial(url: str) -> str:
    for _ in range(300):
        found = _json(f"{url}/api/v1/namespaces/default/experiments/{NAME}/trials?state=Running")["items"]
        if found:
            return str(found[0]["metadata"]["name"])
        time.sleep(0.2)
    raise AssertionError("no trial runs")


def weight(browser: BrowserType, root: Path, rival: Path | None) -> bool:
    """Measure what goes over the wire at a first visit."""
    missed, wholes = False, {}
    with serve(data_of(root, RIVAL_SIZES[0])) as (url, _):
        for name, path, figures in WEIGHED:
            with marked_page(browser, "{}") as page:
                sizes = _sizes(page, url + path, _DRAWN, figures)
            kinds = {"plotly": 0.0, "static": 0.0, "data": 0.0}
            for address, size in sizes.items():
                kind = "plotly" if "plotly" in address else "static" if "/static/" in address else "data"
                kinds[kind] += size / 1000
            whole = sum(kinds.values())
            wholes[name], target = whole / 1000, WEIGHT_TARGET_KB.get(name, float("inf"))
            missed |= whole > target
            print(
                f"weight of {name}: {whole:.0f} KB (target {target:g}; scripts and styles {kinds['static']:.0f}, page "
                f"and data {kinds['data']:.0f}, Plotly {kinds['plotly']:.0f})"
            )
    if rival is not None:
        with _rival(root, rival, RIVAL_SIZES[0]) as url, marked_page(browser, "{}") as page:
            theirs = sum(_sizes(page, f"{url}/dashboard/studies/1", THEIR_HISTORY, 0).values()) / 1e6
        share = wholes["experiment"] / theirs
        missed |= share > SHARE_OF_BYTES
        print(f"  optuna-dashboard: {theirs:.2f} MB; ours is {share:.2f} of it (target {SHARE_OF_BYTES})")
    return missed


def _sizes(page: Page, url: str, drawn: str, figures: int) -> dict[str, float]:
    """Return what was received of each address until so many figures are drawn, as the browser counted it."""
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    addresses: dict[str, str] = {}
    sizes: dict[str, float] = {}
    session.on("Network.requestWillBeSent", lambda e: addresses.__setitem__(e["requestId"], e["request"]["url"]))
    session.on(
        "Network.loadingFinished",
        lambda e: sizes.__setitem__(addresses.get(e["requestId"], ""), e["encodedDataLength"]),
    )
    page.goto(url)
    page.wait_for_function(drawn, arg=figures, timeout=60_000)
    page.wait_for_timeout(3000)
    return sizes


def size(_browser: BrowserType, root: Path, _rival: Path | None) -> bool:
    """Measure what 100,000 trials cost a server."""
    missed = False
    for name, directory in {
        "ended": data_of(root, 100_000),
        "continues": data_of(root, 100_000, goes_on=True, command="sleep 600"),
    }.items():
        began = time.perf_counter()
        with serve(directory, probe="readyz") as (url, process):
            ready, used = time.perf_counter() - began, processor_seconds(process)
            time.sleep(10)  # what is done after the start
            resting = memory_mb(process)
            began = time.perf_counter()
            with urllib.request.urlopen(url + EXPERIMENT, timeout=60) as answer:
                answer.read()
            opened = time.perf_counter() - began
            with _pages(url, 1):
                time.sleep(20)
            one = memory_mb(process)
            with _pages(url, PAGES):
                time.sleep(20)
                many = memory_mb(process)
            busy, began = processor_seconds(process), time.perf_counter()
            count = _read_all(url)
            seconds, busy = time.perf_counter() - began, processor_seconds(process) - busy
            last = memory_mb(process)
        missed |= ready > START_TARGET or last > SIZE_TARGET_MB or many - one > PAGES_TARGET_MB
        print(
            f"100,000 trials, {name}: ready in {ready:.1f} s, {used:.1f} s of processor time (target {START_TARGET} "
            f"s), {resting:.0f} MB; first page {opened:.2f} s; {PAGES} pages {many - one:.0f} MB more than one "
            f"(target {PAGES_TARGET_MB:.0f}); {count:,} trials as JSON in {seconds:.0f} s, {busy:.1f} s of processor "
            f"time; then {last:.0f} MB (target {SIZE_TARGET_MB:.0f}); {_load()}",
            flush=True,
        )
    return missed


def _read_all(url: str) -> int:
    count, cursor = 0, ""
    while True:
        page = _json(f"{url}/api/v1/namespaces/default/experiments/{NAME}/trials?limit=5000&cursor={cursor}")
        count, cursor = count + len(page["items"]), page["cursor"]
        if not cursor:
            return count


def export(_browser: BrowserType, root: Path, _rival: Path | None) -> bool:
    """Measure the page as one file."""
    missed = False
    for count in PAINT_TARGETS:
        path = root / f"{count}.html"
        command = [*KATIB, "export", NAME, "-o", str(path), "--data-dir", str(data_of(root, count))]
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ROOT_ENVIRONMENT)
        code, peak = wait_with_memory(process)
        assert code == 0, f"{command} ended with {code}"
        megabytes, target = path.stat().st_size / 1e6, EXPORT_TARGET_MB.get(count, float("inf"))
        missed |= megabytes > target
        print(
            f"export of {count:,} trials: {megabytes:.1f} MB (target {target:g}), {time.perf_counter() - began:.1f} s, "
            f"{peak:.0f} MB of memory; {_load()}",
            flush=True,
        )
    return missed


class _OpenPage:
    """A client that does what the scripts of an open page do: it follows the stream, and asks for what has changed."""

    PAUSES: ClassVar = {"head": 0.5, "table": 1.0, "figures/history": 1.0, "figures/parallel": 1.0}

    def __init__(self, url: str, ended: threading.Event) -> None:
        self.address = url.removeprefix("http://")
        self.asked, self.seconds = 0, list[float]()
        self._ended = ended
        self._old = dict.fromkeys(self.PAUSES, False)
        self.threads = [threading.Thread(target=run, daemon=True) for run in (self._follow, self._ask)]

    def _path(self, name: str) -> str:
        return f"/katib/data/experiments/default/{NAME}/{name}"

    def _follow(self) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        connection.request("GET", self._path("live"))
        answer = connection.getresponse()
        while not self._ended.is_set() and (line := answer.readline()):
            if line.startswith(b"event: change"):
                self._old = dict.fromkeys(self.PAUSES, True)
        connection.close()

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        last = dict.fromkeys(self.PAUSES, -10.0)
        connection.request("GET", EXPERIMENT)
        connection.getresponse().read()
        while not self._ended.wait(0.05):
            for name, pause in self.PAUSES.items():
                if not self._old[name] or time.monotonic() - last[name] < pause:
                    continue
                self._old[name], last[name] = False, time.monotonic()
                began = time.perf_counter()
                connection.request("GET", self._path(name), headers={"accept-encoding": "gzip"})
                connection.getresponse().read()
                self.seconds.append(time.perf_counter() - began)
                self.asked += 1
        connection.close()


@contextmanager
def _pages(url: str, count: int) -> Iterator[list[_OpenPage]]:
    ended = threading.Event()
    pages = [_OpenPage(url, ended) for _ in range(count)]
    for page in pages:
        for thread in page.threads:
            thread.start()
    try:
        yield pages
    finally:
        ended.set()
        for page in pages:
            for thread in page.threads:
                thread.join(40)


def _json(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})"


def _spread_ms(milliseconds: Sequence[float]) -> str:
    return f"{statistics.median(milliseconds):.0f} ms ({min(milliseconds):.0f} to {max(milliseconds):.0f})"


def _load() -> str:
    return f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {part.__name__: part for part in (paint, table, reading, weight, size, export)}
    parser.add_argument("--only", choices=parts, help="run this part only")
    parser.add_argument("--rival", type=Path, help="a Python that has optuna-dashboard")
    parser.add_argument("--keep", type=Path, help="where data is kept for the next run")
    arguments = parser.parse_args()
    if reason := why_not():
        print(f"nothing is measured: {reason}")
        return 1
    if arguments.rival is None:
        print("optuna-dashboard is not measured: --rival names no Python that has it")
    from playwright.sync_api import sync_playwright

    missed = []
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        root = arguments.keep or Path(place)
        root.mkdir(parents=True, exist_ok=True)
        for name, run in parts.items():
            if arguments.only in (None, name) and run(driver.chromium, root, arguments.rival):
                missed.append(name)
    if missed:
        print(f"missed: {', '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
