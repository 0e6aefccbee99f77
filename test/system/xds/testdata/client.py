"""A stock client in Python: it does what lines of JSON on its standard input say, and answers
each by one."""
import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from slicekey import slice_key

channel = grpc.insecure_channel("xds:///" + sys.argv[1])
# A google.protobuf.StringValue of less than 128 bytes.
hello = channel.unary_unary("/hello.Greeter/SayHello",
                            request_serializer=lambda s: bytes([10, len(s)]) + s.encode(),
                            response_deserializer=lambda b: b[2:].decode())


def call(key):
    return hello(key, metadata=(("slicer-key", key), ("slice-key", slice_key(key))), timeout=20)


class Load:
    def __init__(self, rate):
        self.calls, self.failed, self.errors = 0, 0, []
        self.rate, self.stopped, self.lock = rate, threading.Event(), threading.Lock()
        self.pool = ThreadPoolExecutor(32)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        began, sent = time.monotonic(), 0
        while not self.stopped.is_set():
            while sent < (time.monotonic() - began) * self.rate:
                self.pool.submit(self.one)
                sent += 1
            time.sleep(.005)

    def one(self):
        failure = None
        try:
            call("user-%d" % random.randrange(3000))
        except grpc.RpcError as e:
            failure = "%s: %s" % (e.code(), e.details())
        with self.lock:
            self.calls += 1
            if failure:
                self.failed += 1
                if len(self.errors) < 5:
                    self.errors.append(failure)

    def stop(self):
        self.stopped.set()
        self.thread.join()
        self.pool.shutdown()
        return {"calls": self.calls, "failed": self.failed, "errors": self.errors}


def do(what):
    global load
    if "check" in what:
        with ThreadPoolExecutor(16) as pool:
            return {"tasks": list(pool.map(call, ("user-%d" % i for i in range(what["check"]))))}
    if "rate" in what:
        load = Load(what["rate"])
        return {}
    return load.stop()


for line in sys.stdin:
    try:
        said = do(json.loads(line))
    except grpc.RpcError as e:
        said = {"error": "%s: %s" % (e.code(), e.details())}
    print(json.dumps(said), flush=True)
