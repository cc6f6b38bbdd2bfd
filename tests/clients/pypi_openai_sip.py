"""Decides on telephone calls with the stock client: checks the webhook, accepts the first call, rejects the others.

Usage: pypi_openai_sip.py SECRET    prints the port of its webhook, reads the server's URL and then `hangup ID`.
"""

import http.server
import sys
import threading

import openai


def main() -> None:
    """Serves the webhook until the input ends."""
    (secret,) = sys.argv[1:]
    clients: list[openai.OpenAI] = []
    started = threading.Event()
    accepted: list[str] = []

    class Incoming(http.server.BaseHTTPRequestHandler):
        """Webhook of the server."""

        def do_POST(self) -> None:
            """Decides on one call."""
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            started.wait()
            (client,) = clients
            event = client.webhooks.unwrap(body, dict(self.headers), secret=secret)
            if event.type != "realtime.call.incoming":
                sys.exit(f"an unknown event: {event}")
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            call = event.data.call_id
            if accepted:
                client.realtime.calls.reject(call, status_code=486)
                print(f"rejected {call}", flush=True)
            else:
                accepted.append(call)
                client.realtime.calls.accept(call, type="realtime", instructions="Be brief.")
                print(f"accepted {call}", flush=True)

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Incoming)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    for line in sys.stdin:
        if not clients:
            clients.append(openai.OpenAI(api_key="none", base_url=line.strip()))
            started.set()
        else:
            clients[0].realtime.calls.hangup(line.split()[1])


main()
