#!/usr/bin/env python3
"""Reads a checkpoint of weft run --save by the format's own rules, with Python's standard library alone, and prints each
tensor's type, shape and sum: an independent reader of what Hugging Face's safetensors must be able to read.

usage: check_checkpoint.py DIR/step-000010
"""
import json
import math
import os
import struct
import sys

SIZES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "U8": 1}


def numbers(dtype, data):
    if dtype == "BF16":
        halves = struct.unpack(f"<{len(data) // 2}H", data)
        return struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))
    code = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "U8": "B"}[dtype]
    return struct.unpack(f"<{len(data) // SIZES[dtype]}{code}", data)


def read(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    assert length % 8 == 0 and content[8:9] == b"{", "the header begins with { and is padded to 8 bytes"
    header = json.loads(content[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values()), "metadata are strings"
    assert metadata.get("format") == "pt", "transformers refuses files of another format"
    data, end, tensors = content[8 + length :], 0, {}
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, after = tensor["data_offsets"]
        size = SIZES[tensor["dtype"]]
        assert begin == end, f"{name}: no gaps and no overlaps"
        assert begin % size == 0, f"{name}: aligned"
        assert after - begin == size * math.prod(tensor["shape"]), f"{name}: its bytes are those of its shape"
        values = numbers(tensor["dtype"], data[begin:after])
        assert all(math.isfinite(value) for value in values), f"{name}: numbers"
        tensors[name] = (tensor["dtype"], tensor["shape"], math.fsum(values))
        end = after
    assert end == len(data), "nothing after the last tensor"
    return tensors, end


def main(directory):
    with open(os.path.join(directory, "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    found, total = {}, 0
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))], files
    assert sorted(os.listdir(directory)) == sorted(files + ["model.safetensors.index.json"]), os.listdir(directory)
    for name in files:
        tensors, size = read(os.path.join(directory, name))
        assert not found.keys() & tensors.keys(), "every tensor once"
        assert all(index["weight_map"][tensor] == name for tensor in tensors), "the index knows its file"
        found.update(tensors)
        total += size
    assert found.keys() == index["weight_map"].keys() and total == index["metadata"]["total_size"]
    for name, (dtype, shape, total) in sorted(found.items()):
        print(f"{name} {dtype} {shape} {total:.9g}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
