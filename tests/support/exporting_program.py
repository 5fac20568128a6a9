"""`python exporting_program.py PORT VALUE...`: offers `loss` with each value in turn until that one was scraped."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main(port: int, values: list[str]) -> None:
    scraped = threading.Event()
    shown = [""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = shown[0]
            body = f"loss {value}\n".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            if value == shown[0]:
                scraped.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    for value in values:
        shown[0] = value
        scraped.clear()
        if value == values[0]:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        if not scraped.wait(120):
            sys.exit(3)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
