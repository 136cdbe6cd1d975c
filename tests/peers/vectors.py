"""Bytes as captured from Mooncake, verbatim: what was sent and what came back."""


def _hex(text):
    return bytes.fromhex(text.replace("|", " "))


PROBE_REQUEST = _hex("03 00 00 00 00 00 00 00 | 03 |") + b"{}"
PROBE_REPLY = _hex("16 00 00 00 00 00 00 00 | 03 |") + b'{"status":"success"}\n'
NOTIFY_REPLY = _hex("24 00 00 00 00 00 00 00 | 02 |") + b'{"name":"","notify_msg":"success"}\n'
EMPTY_CONNECTION = (b'{"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"","qp_num":[],"reply_msg":""}' b"\n")
CONNECTION_REPLY = _hex("6f 00 00 00 00 00 00 00 | 00 |") + EMPTY_CONNECTION
CONNECTION_REPLY_OLD = _hex("6e 00 00 00 00 00 00 00") + EMPTY_CONNECTION


def write_v2(address, data):
    """The request of 8 bytes."""
    return _hex("08 00 00 00 00 00 00 00") + address.to_bytes(8, "little") + _hex("81 00 00 00 00 00 00 00") + data


def read_v2(address):
    return _hex("08 00 00 00 00 00 00 00") + address.to_bytes(8, "little") + _hex("80 00 00 00 00 00 00 00")


WRITTEN = _hex("00 00 00 00 56 54 43 4d")
REJECTED = _hex("01 00 00 00 56 54 43 4d")
