"""Counts users' visits in memory: GET /users/NAME. It knows nothing of Slicer."""
import collections
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port = int(sys.argv[1])
visits = collections.Counter()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        user = self.path.split("/")[2]
        visits[user] += 1
        body = f"visit {visits[user]} of {user}, at {port}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
