"""Read the items in an image of ESP-IDF's NVS, as Espressif's nvs_partition_gen writes it."""

import struct
import zlib

_PAGE, _ENTRY, _ENTRIES = 4096, 32, 126
_WRITTEN, _NUMBER, _BLOB_DATA, _BLOB_INDEX = 2, 0x01, 0x42, 0x48


def blobs(image: bytes) -> dict[tuple[str, str], bytes]:
    """Return the blobs by namespace and key, after checking all CRCs."""
    namespaces: dict[int, str] = {}
    chunks: dict[tuple[int, str, int], bytes] = {}
    indices: dict[tuple[int, str], tuple[int, int, int]] = {}
    for at in range(0, len(image), _PAGE):
        page = image[at : at + _PAGE]
        if page == b"\xff" * _PAGE:
            continue
        assert zlib.crc32(page[4:28], 0xFFFFFFFF) == int.from_bytes(page[28:32], "little")
        number = 0
        while number < _ENTRIES:
            entry = page[64 + _ENTRY * number :][:_ENTRY]
            if page[32 + number // 4] >> (number % 4 * 2) & 3 != _WRITTEN:
                number += 1
                continue
            space, kind, span, chunk, crc, name, value = struct.unpack("<BBBBI16s8s", entry)
            assert zlib.crc32(entry[:4] + entry[8:], 0xFFFFFFFF) == crc
            key = name.split(b"\0")[0].decode()
            if kind == _NUMBER and space == 0:
                namespaces[value[0]] = key
            elif kind == _BLOB_INDEX:
                indices[space, key] = struct.unpack("<IBBxx", value)
            elif kind == _BLOB_DATA:
                size, data_crc = struct.unpack("<HxxI", value)
                data = page[64 + _ENTRY * (number + 1) :][:size]
                assert zlib.crc32(data, 0xFFFFFFFF) == data_crc
                chunks[space, key, chunk] = data
            number += span
    found: dict[tuple[str, str], bytes] = {}
    for (space, key), (size, count, start) in indices.items():
        data = b"".join(chunks[space, key, start + i] for i in range(count))
        assert len(data) == size
        found[namespaces[space], key] = data
    return found
