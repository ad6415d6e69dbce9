#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Serves an archive on 127.0.0.1 whose index has one package, and which answers requests for the package with 404:

  reason.py PACKAGES REASON    files with the index and with the reason phrase of the 404; prints the port

It exits after a minute in any case."""
import http.server
import pathlib
import signal
import sys

INDEX, REASON = (pathlib.Path(name).read_bytes() for name in sys.argv[1:3])


class Archive(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.endswith("/Packages"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(INDEX)))
            self.end_headers()
            self.wfile.write(INDEX)
        else:
            # Send the bytes unchanged: send_response() would encode them.
            reason = REASON if self.path.endswith(".deb") else b"Not Found"
            self.wfile.write(b"HTTP/1.1 404 " + reason.strip() + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.close_connection = True


signal.alarm(60)
server = http.server.HTTPServer(("127.0.0.1", 0), Archive)
print(server.server_port, flush=True)
server.serve_forever()
