"""Fits a line by gradient descent and offers the loss to Prometheus while it does, with the standard library alone."""

from __future__ import annotations

import argparse
import os
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STEPS = 40
SECONDS_PER_STEP = 0.05
LAST_SCRAPE_SECONDS = 5.0


class Metrics:
    """What is offered now, as Prometheus text."""

    def __init__(self) -> None:
        self.text = ""
        self.scraped = threading.Event()

    def show(self, train: float, val: float) -> None:
        """Offer new values."""
        self.text = f'# TYPE loss gauge\nloss{{split="train"}} {train}\nloss{{split="val"}} {val}\n'
        self.scraped.clear()


def serve(metrics: Metrics) -> None:
    """Answer scrapes in the background."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = metrics.text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if body == metrics.text.encode():
                metrics.scraped.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Print no line for each scrape."""

    port = int(os.environ.get("KATIB_METRICS_PORT", "8080"))
    threading.Thread(target=ThreadingHTTPServer(("", port), Handler).serve_forever, daemon=True).start()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, required=True)
    lr = parser.parse_args().lr
    generator = random.Random(0)
    places = [generator.uniform(-1.0, 1.0) for _ in range(100)]
    points = [(x, 3.0 * x + 1.0 + generator.gauss(0.0, 0.1)) for x in places]
    train, val = points[:80], points[80:]
    slope = offset = 0.0
    metrics = Metrics()
    metrics.show(loss(train, slope, offset), loss(val, slope, offset))
    serve(metrics)
    for _ in range(STEPS):
        slope -= lr * sum(2 * (slope * x + offset - y) * x for x, y in train) / len(train)
        offset -= lr * sum(2 * (slope * x + offset - y) for x, y in train) / len(train)
        metrics.show(loss(train, slope, offset), loss(val, slope, offset))
        time.sleep(SECONDS_PER_STEP)
    metrics.scraped.wait(LAST_SCRAPE_SECONDS)  # who ends at once takes the last value along


def loss(points: list[tuple[float, float]], slope: float, offset: float) -> float:
    """Return the mean squared error."""
    return sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)


if __name__ == "__main__":
    main()
