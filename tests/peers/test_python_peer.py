"""The Python peer against itself: whoever tests must be tested."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integ"))
import initiator
import tool
import vectors
import wire
from target import Target


class PythonPeer(unittest.TestCase):
    def test_vectors(self):
        self.assertEqual(wire.frame(wire.PROBE, {}), vectors.PROBE_REQUEST)
        with Target() as target:
            for request, reply in [(vectors.PROBE_REQUEST, vectors.PROBE_REPLY),
                                   (wire.frame(wire.CONNECTION, {"qp_num": []}), vectors.CONNECTION_REPLY),
                                   (wire.frame(None, {"qp_num": []}), vectors.CONNECTION_REPLY_OLD),
                                   (wire.frame(wire.NOTIFY, {"name": "a", "notify_msg": "b"}), vectors.NOTIFY_REPLY)]:
                with initiator.connect("127.0.0.1", target.handshake_port) as sock:
                    sock.sendall(request)
                    self.assertEqual(wire.take(sock, len(reply)), reply)

    def test_all_shapes(self):
        for version in (1, 2):
            for pooled in (True, False):
                for close_each in (False, True):
                    if close_each and pooled:
                        continue
                    with Target(proto=version, knows_v2=version == 2, close_each=close_each) as target, \
                            initiator.Segment(target.name, version, pooled) as segment:
                        for i in range(5):
                            data = wire.pattern(i * 1000, 5000, i)
                            segment.write(target.base + i * 5000, data)
                            self.assertEqual(segment.read(target.base + i * 5000, 5000), data)
                        self.assertEqual({request[4] for request in target.requests}, {initiator.GARBAGE})

    def test_refusals(self):
        for late in (False, True):
            with Target(late_reset=late) as target, initiator.Segment(target.name) as segment:
                with self.assertRaises((initiator.Refused, OSError)):
                    segment.write(target.base + len(target.memory) - 3, b"1234")
                segment.close()
                segment.write(target.base, b"1234")
                self.assertEqual(bytes(target.memory[:4]), b"1234")

    def test_stalls(self):
        for point in ("header", "status", "payload"):
            with Target(stall=point) as target, initiator.Segment(target.name) as segment:
                segment.connection().settimeout(0.2)
                with self.assertRaises(OSError):
                    segment.read(target.base, 4096)
                target.go()


if __name__ == "__main__":
    tool.main()
