"""Starts nginx or HAProxy with the examples' configurations before workers of a test."""

import os
import re
import shutil
import socket
import subprocess
import time

from server import Server, free_port

EXAMPLES = "examples/proxy"
FRONT, PORTS = "8080", ("9001", "9002")
# Debian's folder of the programs is not in every user's PATH.
SEARCHED = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"


def program_path(name):
    return shutil.which(name, path=SEARCHED)


class Balancer(Server):
    """A balancer with an example's configuration. It is asked like a Server.

    workers: servers, or ports. changes: pairs of texts of the configuration, old and new.
    """

    name, config = None, None

    def __init__(self, folder, workers, key, changes=()):
        self.key, self.code = key, None
        self.folder = os.path.join(folder, f"{self.name}{time.monotonic_ns()}")
        os.mkdir(self.folder)
        self.port = free_port()
        self.address = ("127.0.0.1", self.port)
        with open(os.path.join(EXAMPLES, self.config), encoding="utf-8") as f:
            text = f.read()
        ports = [getattr(w, "port", w) for w in workers]
        changes = [*changes, *self.places()]
        changes += [(f"127.0.0.1:{old}", f"127.0.0.1:{new}") for old, new in zip(PORTS, ports)]
        for old, new in changes:
            if old not in text:
                raise ValueError(f"{self.config} has no {old!r}")
            text = text.replace(old, new)
        self.path = os.path.join(self.folder, self.config)
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)
        self.log = open(os.path.join(self.folder, "log"), "wb+")  # closed by stop()
        self.process = subprocess.Popen(
            [program_path(self.name), *self.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        self.wait_open()

    def wait_open(self):
        for _ in range(200):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(self.address, 1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.log.seek(0)
        raise RuntimeError(f"{self.name} does not listen: {self.log.read().decode()[-500:]}")

    def stop(self, seconds=10):
        if self.code is None:
            self.process.terminate()
            try:
                self.code = self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.code = self.process.wait()
            self.log.close()
        return self.code


class Nginx(Balancer):
    name, config = "nginx", "nginx.conf"

    def places(self):
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        paths = " ".join(f"{kind}_temp_path {self.folder}/{kind};" for kind in kinds)
        return [
            (f"        listen {FRONT};", f"        listen 127.0.0.1:{self.port};"),
            ("\nhttp {", f"\nhttp {{ access_log off; {paths}"),
            ("worker_processes auto;", f"worker_processes 1; pid {self.folder}/pid;"),
        ]

    def arguments(self):
        more = "daemon off; error_log stderr;"
        return ["-p", self.folder, "-e", "stderr", "-c", self.path, "-g", more]


class Haproxy(Balancer):
    name, config = "haproxy", "haproxy.cfg"

    def places(self):
        self.control = os.path.join(self.folder, "s")
        return [
            (f"    bind :{FRONT}\n", f"    bind 127.0.0.1:{self.port}\n"),
            ("    maxconn 512\n", f"    nbthread 1\n    stats socket {self.control}\n"),
        ]

    def arguments(self):
        return ["-db", "-f", self.path]

    def states(self):
        """Server -> its state and the number of times it went down."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.control)
            s.sendall(b"show stat\n")
            text = b""
            while data := s.recv(1 << 16):
                text += data
        lines = [line.split(",") for line in text.decode().strip().split("\n")]
        column = {name: i for i, name in enumerate(lines[0])}
        return {
            line[1]: (line[column["status"]].split(" ")[0], int(line[column["chkdown"]] or 0))
            for line in lines[1:]
            if line[0].endswith("workers") and re.fullmatch(r"w\d", line[1])
        }
