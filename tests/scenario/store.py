# SPDX-License-Identifier: Apache-2.0
"""What the processes of a job share outside NCCL: unique ids, barriers, and the runner's ear.

The runner owns a `Store`; each rank opens one control connection to it, and a connection of its own
for every wait (so that several threads may wait, and a wait is a plain `recv`). Messages are JSON in
datagrams of a sequenced-packet socket in the abstract name space, which leaves no file behind.

A rank says   control, ready, stay, crash    on its control connection, and is told `go` and `leave` there
              id KEY         answered by b"I" + the unique id, or by b"M": make it, everybody waits for you
              set KEY VALUE  the unique id just made
              barrier KEY    answered by b"B" once all the members it names came
              wrong TEXT     a result is wrong; answered by b"W", so that no end of the rank overtakes it

A unique id is made by the first that asks for it: like this, which members call an init, and in
which order, is never held up by the store.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import threading


class Store:
    """Serves the ranks of one job on daemon threads; what a rank reports goes to `events`.

    Events are tuples ("ready", rank), ("stay", rank), ("wrong", rank, text), ("crash", rank, text).
    """

    _serial = 0

    def __init__(self, events: queue.Queue) -> None:
        Store._serial += 1
        self.address = f"ncclscenario-{os.getpid()}-{Store._serial}-{os.urandom(4).hex()}"
        self.events = events
        self._changed = threading.Condition()
        self._ids: dict = {}            # key -> bytes, or None while it is being made
        self._arrived: dict = {}        # barrier key -> members
        self._control: dict = {}        # rank -> connection
        self._open: list = []
        self._closed = False
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind("\0" + self.address)
        self._server.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def tell(self, rank: int, word: str) -> None:
        """Sends `word` to a rank; one that is gone already does not mind."""
        connection = self._control.get(rank)
        if connection is not None:
            try:
                connection.send(word.encode())
            except OSError:
                pass

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for connection in [self._server, *self._open]:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                raw = connection.recv(65536)
                if not raw:
                    return
                self._handle(json.loads(raw), connection)
        except OSError:
            return

    def _handle(self, message: dict, connection: socket.socket) -> None:
        what = message["what"]
        if what == "control":
            self._control[message["rank"]] = connection
        elif what in ("ready", "stay"):
            self.events.put((what, message["rank"]))
        elif what in ("wrong", "crash"):
            self.events.put((what, message["rank"], message["text"]))
            connection.send(b"W")
        elif what == "set":
            with self._changed:
                self._ids[message["key"]] = bytes.fromhex(message["value"])
                self._changed.notify_all()
        elif what == "id":
            connection.send(self._id(message["key"]))
        elif what == "barrier":
            connection.send(self._barrier(message["key"], message["member"], set(message["members"])))

    def _id(self, key: str) -> bytes:
        with self._changed:
            if key not in self._ids:
                self._ids[key] = None
                return b"M"
            self._changed.wait_for(lambda: self._ids[key] or self._closed)
            return b"I" + (self._ids[key] or b"")

    def _barrier(self, key: str, member: str, members: set) -> bytes:
        with self._changed:
            here = self._arrived.setdefault(key, set())
            here.add(member)
            self._changed.notify_all()
            self._changed.wait_for(lambda: members <= here or self._closed)
            return b"B"


class Client:
    """A rank's side of the store."""

    def __init__(self, address: str, rank: int) -> None:
        self.address, self.rank = address, rank
        self.control = self._connect()
        self.say("control")

    def say(self, what: str, **fields) -> None:
        self.control.send(json.dumps({"what": what, "rank": self.rank, **fields}).encode())

    def ask(self, what: str, **fields) -> socket.socket:
        """A connection on which the answer will arrive as one message."""
        connection = self._connect()
        connection.send(json.dumps({"what": what, "rank": self.rank, **fields}).encode())
        return connection

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect("\0" + self.address)
        return connection
