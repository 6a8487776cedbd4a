"""The link between the site and the cloud: passes requests on, and fails as the file beside it says. Started by `run`:
link.py FILE CLOUD. The file holds one word: `up`; `cut`, where nothing gets through; `lost`, where the request gets through and
the answer does not; or a status, such as 500, that the cloud answers to everything. It must not change a request."""

import http.client
import http.server
import pathlib
import sys

mode, cloud = pathlib.Path(sys.argv[1]), sys.argv[2]


class Link(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        word = mode.read_text().strip()
        if word == "cut":
            self.close_connection = True
        elif word.isdigit():
            self.answer(int(word), "application/json", b"{}")
        else:
            connection = http.client.HTTPConnection(cloud, timeout=30)
            connection.request("POST", self.path, body, {"content-type": self.headers["content-type"]})
            answer = connection.getresponse()
            text = answer.read()
            if word == "lost":
                self.close_connection = True
            else:
                self.answer(answer.status, answer.headers["content-type"], text)
            connection.close()

    def answer(self, status, content_type, body):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Link)
print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
