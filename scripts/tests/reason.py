#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""An archive on 127.0.0.1 whose index has one package, and whose answer for the package is a 404:

  reason.py PACKAGES REASON    files: the index, and the reason phrase of the 404; prints the port

It ends after a minute, whatever became of the test."""
import http.server
import pathlib
import signal
import sys

INDEX, REASON = (pathlib.Path(name).read_bytes() for name in sys.argv[1:3])


class Archive(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("/Packages"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(INDEX)))
            self.end_headers()
            self.wfile.write(INDEX)
        else:
            # Byte for byte: send_response() would encode it.
            reason = REASON if self.path.endswith(".deb") else b"Not Found"
            self.wfile.write(b"HTTP/1.1 404 " + reason.strip() + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.close_connection = True


signal.alarm(60)
server = http.server.HTTPServer(("127.0.0.1", 0), Archive)
print(server.server_port, flush=True)
server.serve_forever()
